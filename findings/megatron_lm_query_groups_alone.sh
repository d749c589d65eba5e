#!/bin/bash
# Versions:  megatron-core 0.19.2 (megatron.training.argument_utils)
# Behaviour: --num-query-groups 8 without --group-query-attention is dropped without a word: the TransformerConfig gets
#            num_query_groups None, so the model has as many key and value heads as query heads.
# Guess:     "--num-query-groups says how many groups there are, as num_key_value_heads does". Wrong: it is read only with
#            the switch, so the weights of attention, its memory and its speed are those of plain multi-head attention.
# Output:    --num-query-groups 8: num_query_groups None
#            --group-query-attention --num-query-groups 8: num_query_groups 8
# Exits non-zero if the behaviour changes.
set -euo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python3.12 -m venv "$work/venv"
"$work/venv/bin/pip" install -q --disable-pip-version-check --no-deps --target "$work/site" megatron-core==0.19.2
"$work/venv/bin/python" - "$work/site/megatron/training" <<'PY'
import ast, sys
from pathlib import Path
from types import SimpleNamespace

folder = Path(sys.argv[1])
tree = ast.parse((folder / "argument_utils.py").read_text())
reads = [n for n in ast.walk(tree) if isinstance(n, ast.If) and ast.unparse(n.test) == "args.group_query_attention"]
found = []
for switch in (False, True):
    values = {}
    exec(
        compile(ast.Module(reads, []), "argument_utils", "exec"),
        {"args": SimpleNamespace(group_query_attention=switch, num_query_groups=8), "kw_args": values},
    )
    found.append(values["num_query_groups"])
# the checks of the arguments say nothing about it either
checks = ast.unparse(next(n for n in ast.parse((folder / "arguments.py").read_text()).body if getattr(n, "name", "") == "validate_args"))
silent = "num_query_groups" not in checks
print(f"--num-query-groups 8: num_query_groups {found[0]}" + ("" if silent else ", and the checks name it"))
print(f"--group-query-attention --num-query-groups 8: num_query_groups {found[1]}")
sys.exit(not (found == [None, 8] and silent))
PY
