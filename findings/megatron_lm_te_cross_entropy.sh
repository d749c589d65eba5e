#!/bin/bash
# Versions:  megatron-core 0.19.2 (megatron.training), megatron-bridge 0.6.2, which pins that Core
# Behaviour: --cross-entropy-loss-fusion --cross-entropy-fusion-impl te is refused by Megatron-LM's validate_args, although
#            te is one of the argument's choices. The same Core's ModelParallelConfig only warns of the same two values,
#            and 26 of Bridge's files set them.
# Guess:     "the two are one code base: what a Bridge recipe sets, the arguments can state". Wrong: the kernel that
#            Bridge's recipes ask for cannot be asked for by a script.
# Output:    choices with te: True; validate_args: AssertionError: Transformer Engine cross entropy loss fusion is disabled ...
#            Bridge's files that ask for te: 26
# Exits non-zero if the behaviour changes.
set -euo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python3.12 -m venv "$work/venv"
"$work/venv/bin/pip" install -q --disable-pip-version-check --no-deps \
  --target "$work/site" megatron-core==0.19.2 megatron-bridge==0.6.2
"$work/venv/bin/python" - "$work/site/megatron" <<'PY'
import ast, re, sys
from pathlib import Path
from types import SimpleNamespace

folder = Path(sys.argv[1])
config = (folder / "core/transformer/transformer_config.py").read_text() + (folder / "core/model_parallel_config.py").read_text()
choices = re.search(r"cross_entropy_fusion_impl: Literal\[([^\]]*)\]", config)
tree = ast.parse((folder / "training/arguments.py").read_text())
checks = next(n for n in tree.body if isinstance(n, ast.FunctionDef) and n.name == "validate_args")
about = [n for n in ast.walk(checks) if isinstance(n, ast.Assert) and "cross_entropy_fusion_impl" in ast.unparse(n.test)]
args = SimpleNamespace(cross_entropy_loss_fusion=True, cross_entropy_fusion_impl="te")
try:
    exec(compile(ast.Module(about, []), "validate_args", "exec"), {"args": args})
    said = "accepted"
except AssertionError as error:
    said = f"AssertionError: {error}"
asks = re.compile(r"cross_entropy_fusion_impl(?:: \w+)? = ['\"]te['\"]")
files = [p for p in (folder / "bridge").rglob("*.py") if asks.search(p.read_text())]
print(f"choices with te: {bool(choices and 'te' in choices[1])}; validate_args: {said}")
print(f"Bridge's files that ask for te: {len(files)}")
sys.exit(not (choices and "te" in choices[1] and said.startswith("AssertionError") and len(files) >= 10))
PY
