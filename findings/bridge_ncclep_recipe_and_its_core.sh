#!/bin/bash
# Versions:  megatron-bridge 0.6.2 with megatron-core 0.19.2, the Core of its release
# Behaviour: Bridge's recipe gpt_oss_120b_pretrain_64gpu_gb200_bf16_ncclep_config sets moe_expert_rank_capacity_factor to
#            None, with the remark that eager NCCL EP sizes the receive buffer per step. Core 0.19.2 has no eager buffers:
#            its NCCL EP dispatcher raises a ValueError if the factor is None, so no layer of the recipe can be built.
# Guess:     "a performance recipe in a release runs with the Core of that release". Wrong for this one: it is written for
#            a later Core.
# Output:    recipe: None; dispatcher: ValueError: The 'ncclep' backend requires moe_expert_rank_capacity_factor to be set: ...
#            with 1.5: built
# Exits non-zero if the behaviour changes.
set -euo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python3.12 -m venv "$work/venv"
"$work/venv/bin/pip" install -q --disable-pip-version-check --no-deps \
  --target "$work/site" megatron-bridge==0.6.2 megatron-core==0.19.2
"$work/venv/bin/python" - "$work/site" <<'PY'
import ast, sys
from pathlib import Path
from types import SimpleNamespace

site = Path(sys.argv[1], "megatron")
helper = ast.parse((site / "bridge/perf_recipes/gpt_oss/common.py").read_text())
function = next(n for n in helper.body if isinstance(n, ast.FunctionDef) and n.name == "_enable_ncclep_bf16")
scope = {"CommOverlapConfig": SimpleNamespace, "ConfigContainer": object}
exec(compile(ast.Module([function], []), "recipe", "exec"), scope)
cfg = SimpleNamespace(model=SimpleNamespace(), comm_overlap=SimpleNamespace())
scope["_enable_ncclep_bf16"](cfg)
factor = cfg.model.moe_expert_rank_capacity_factor

source = ast.parse((site / "core/transformer/moe/token_dispatcher.py").read_text())
manager = next(n for n in source.body if isinstance(n, ast.ClassDef) and n.name == "_NCCLEPManager")
made = next(n for n in manager.body if isinstance(n, ast.FunctionDef) and n.name == "__init__")
made.returns, made.args.args = None, [ast.arg(a.arg) for a in made.args.args]
names = {"get_align_size_for_quantization": lambda _: 0, "nccl_ep_dispatch": object(), "Optional": dict, "torch": SimpleNamespace(Tensor=object)}
code = "from __future__ import annotations\n" + ast.unparse(made)
exec(code, names)


def asked(factor):
    config = SimpleNamespace(
        moe_latent_size=None, hidden_size=2880, moe_ncclep_static_shape=False, moe_ncclep_zero_copy=False,
        fp8=None, fp4=None, moe_expert_rank_capacity_factor=factor,
    )
    try:
        names["__init__"](SimpleNamespace(), None, 2, 4, 128, config)
    except ValueError as error:
        return f"ValueError: {error}"
    return "built"


first, second = asked(factor), asked(1.5)
print(f"recipe: {factor}; dispatcher: {first}")
print(f"with 1.5: {second}")
sys.exit(not (factor is None and first.startswith("ValueError") and second == "built"))
PY
