; Generated from grammar/moe.lark by tools/make_editors.py. Where two patterns name a node, the later one counts.

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

[(name) (word)] {{ to.name }}
(binding . (name) {{ to.property }})
(value_fact . (name) {{ to.property }})
(bindings_fact . (name) {{ to.property }})
(block_fact . (name) {{ to.property }})
(cite . (name) {{ to.attribute }})

([(name) (word)] {{ to.value }}
  (#any-of? {{ to.value }} {% for word in words.values %}"{{ word }}"{{ " " if not loop.last }}{% endfor %}))

((name) {{ to.axis }}
  (#any-of? {{ to.axis }} {% for word in words.axes %}"{{ word }}"{{ " " if not loop.last }}{% endfor %}))

(call . (name) {{ to.function }})
{% for rule in grammar.declarations() %}
({{ rule }} . _ . (name) {{ to.declared }})
{%- endfor %}
(profile_decl (first_name "first" {{ to.declared }}))
{% for rule in ("law", "advice", "rank", "measured", "symptom") %}
({{ rule }} . _ . (name) {{ to.label }})
{%- endfor %}
