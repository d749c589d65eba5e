#!/bin/bash
# Versions:  megatron-core 0.19.2 (megatron.training.arguments)
# Behaviour: --async-save with the default checkpoint format is switched off by validate_args unless the run also gives
#            --use-persistent-ckpt-worker, with one warning on rank 0 among the start's output. With it off,
#            --async-strategy becomes mcore, whatever the run says.
# Guess:     "--async-save makes saving asynchronous; the persistent worker is a matter of speed". Wrong: alone it saves
#            synchronously, and training waits for each checkpoint.
# Output:    alone: async_save False, async_strategy mcore
#            with the worker: async_save True, async_strategy nvrx
# Exits non-zero if the behaviour changes.
set -euo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python3.12 -m venv "$work/venv"
"$work/venv/bin/pip" install -q --disable-pip-version-check --no-deps --target "$work/site" megatron-core==0.19.2
"$work/venv/bin/python" - "$work/site/megatron/training/arguments.py" <<'PY'
import ast, sys
from pathlib import Path
from types import SimpleNamespace

tree = ast.parse(Path(sys.argv[1]).read_text())
checks = next(n for n in tree.body if isinstance(n, ast.FunctionDef) and n.name == "validate_args")
about = [n for n in checks.body if isinstance(n, ast.If) and "args.async_save" in ast.unparse(n.test)]
code = compile(ast.Module(about, []), "validate_args", "exec")
found = []
for worker in (False, True):
    args = SimpleNamespace(
        use_dist_ckpt=True, async_save=True, use_persistent_ckpt_worker=worker, async_strategy="nvrx", logits_save_dir=None
    )
    exec(code, {"args": args, "warn_rank_0": lambda *_: None})
    found.append((args.async_save, args.async_strategy))
print("alone: async_save %s, async_strategy %s" % found[0])
print("with the worker: async_save %s, async_strategy %s" % found[1])
sys.exit(found != [(False, "mcore"), (True, "nvrx")])
PY
