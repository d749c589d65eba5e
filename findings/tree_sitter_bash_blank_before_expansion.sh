#!/usr/bin/env bash
# tree-sitter 0.26.1, tree-sitter-bash 0.25.1: a blank between two expansions in double quotes belongs to no text node.
#
# Behaviour: in "${A} ${B}" the string has no `string_content` for the blank between the expansions. It is the first
#   character of the second expansion's own `${` token, so that its text is ` ${B}` and starts one byte early.
# Guess: a string is its `string_content` nodes and its expansions, and what stands between two expansions is content, as it is
#   between a word and an expansion. Wrong: joining the nodes' values glues the last word of one variable to the first word
#   of the next. Launch scripts of Megatron-LM are made of such strings (`run_cmd="torchrun ... ${MODEL_ARGS} ${MOE_ARGS}"`), so a
#   reader of them gets `--swiglu--num-experts`.
# Seen: children of the string: ['"', 'expansion', 'expansion', '"'], texts '${A}' and ' ${B}'; glued: '--swiglu--num-experts 8'.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install -q --disable-pip-version-check tree-sitter==0.26.1 tree-sitter-bash==0.25.1
"$folder/venv/bin/python" - <<'PYTHON'
import tree_sitter
import tree_sitter_bash

parser = tree_sitter.Parser(tree_sitter.Language(tree_sitter_bash.language()))
string = parser.parse(b'x="${A} ${B}"\n').root_node.children[0].child_by_field_name("value")
kinds = [c.type for c in string.children]
first, second = (c for c in string.children if c.type == "expansion")
values = {"A": "--swiglu", "B": "--num-experts 8"}
glued = "".join(values[c.text.decode().strip()[2:-1]] for c in (first, second))
print(kinds, repr(first.text.decode()), repr(second.text.decode()), repr(glued))
assert "string_content" not in kinds and second.text == b" ${B}" and glued == "--swiglu--num-experts 8"
PYTHON
echo "as described"
