{% set to = {
  "comment": "@comment @spell", "string": "@string", "number": "@number", "boolean": "@boolean", "keyword": "@keyword",
  "clause": "@keyword.modifier", "wordop": "@keyword.operator", "conditional": "@keyword.conditional",
  "operator": "@operator", "bracket": "@punctuation.bracket", "delimiter": "@punctuation.delimiter",
  "name": "@variable", "property": "@property", "attribute": "@attribute", "value": "@constant.builtin",
  "axis": "@variable.builtin", "function": "@function.builtin", "declared": "@type.definition", "label": "@label",
} -%}
{% include "_highlights.scm" %}
