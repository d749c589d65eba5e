; Generated from grammar/moe.lark by tools/make_editors.py.
{%- if to.name %} Where two patterns name a node, the later one counts.
{%- else %} No node is named twice: Helix has changed which one counts.
{%- endif %}

(comment) {{ to.comment }}
(string) {{ to.string }}
[(number) (version)] {{ to.number }}
(bool) {{ to.boolean }}

[
{%- for word in grammar.starters() %}
  "{{ word }}"
{%- endfor %}
] {{ to.keyword }}

[
{%- for word in words.clauses %}
  "{{ word }}"
{%- endfor %}
{%- for word in words.links if word not in words.operators %}
  "{{ word }}"
{%- endfor %}
] {{ to.clause }}

[{% for word in words.operators if word not in ("if", "then", "else") %} "{{ word }}"{% endfor %} ] {{ to.wordop }}
["if" "then" "else"] {{ to.conditional }}
[{% for symbol in words.symbols if symbol not in "()[]{},:;" %} "{{ symbol }}"{% endfor %} ] {{ to.operator }}
["(" ")" "[" "]" "{" "}"] {{ to.bracket }}
[":" "," ";"] {{ to.delimiter }}

{% macro listed(items) %}{% for word in items %} "{{ word }}"{% endfor %}{% endmacro -%}
{% macro named(rules, before, capture) %}
{%- if not to.name %}({% endif %}[
{%- for rule in rules %}
  ({{ rule }} . {{ before }}(name) {{ capture }})
{%- endfor %}
]
{%- if not to.name %} (#not-any-of? {{ capture }}{{ listed(words.axes + words.values) }})){% endif %}
{% endmacro -%}
{% if to.name -%}
[(name) (word)] {{ to.name }}
{% endif -%}
{{ named(("binding", "value_fact", "bindings_fact", "block_fact"), "", to.property) }}
{{ named(("cite",), "", to.attribute) }}
([(name) (word)] {{ to.value }}
  (#any-of? {{ to.value }}{{ listed(words.values) }}))

((name) {{ to.axis }}
  (#any-of? {{ to.axis }}{{ listed(words.axes) }}))

(call . (name) {{ to.function }})

{{ named(grammar.declarations(), "_ . ", to.declared) }}
(profile_decl (first_name{{ " \"first\" " ~ to.declared if to.name }}){{ " " ~ to.declared if not to.name }})

{{ named(("law", "advice", "rank", "measured", "symptom"), "_ . ", to.label) }}