[
{%- for rule in grammar.declarations() %}
  ({{ rule }})
{%- endfor %}
  (block_fact)
  (list)
  (paren)
] @fold
