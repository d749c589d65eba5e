#!/usr/bin/env bash
# bashlex 0.18: two constructs of nearly every launch script of Megatron-LM are refused, although bash accepts them.
#
# Behaviour: an array assignment, ARGS=(--num-layers 32), is a ParsingError ("unexpected token '('"), and an arithmetic
#   expansion, WORLD_SIZE=$(($GPUS_PER_NODE*$NNODES)), raises NotImplementedError; with either, nothing of the script is parsed.
# Guess: bashlex is a port of GNU bash's own parser, so that whatever `bash -n` accepts it parses. Wrong: array assignments and
#   arithmetic are among the parts that it left out; the documented examples of Megatron-Core use both.
# Seen: bash -n accepts both lines; bashlex: ParsingError, NotImplementedError.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install -q --disable-pip-version-check bashlex==0.18
printf 'ARGS=(--num-layers 32)\n' > "$folder/array.sh"
printf 'WORLD_SIZE=$(($GPUS_PER_NODE*$NNODES))\n' > "$folder/arithmetic.sh"
bash -n "$folder/array.sh"
bash -n "$folder/arithmetic.sh"
cd "$folder"
"$folder/venv/bin/python" - <<'PYTHON'
import bashlex

said = []
for name in ("array.sh", "arithmetic.sh"):
    try:
        bashlex.parse(open(name).read())
        said.append("parsed")
    except Exception as error:
        said.append(type(error).__name__)
print(said)
assert said == ["ParsingError", "NotImplementedError"], said
PYTHON
echo "as described"
