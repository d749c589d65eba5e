#!/bin/bash
# Versions:  megatron-bridge 0.6.2, megatron-core 0.19.2
# Behaviour: the optimizer helper of Bridge's recipes takes weight_decay, 0.1 unless it is given, and start_weight_decay
#            and end_weight_decay, 0.033 each. The first goes to OptimizerConfig; Megatron-Core's scheduler writes the
#            other two over it before the first step. So recipes train with 0.033, whatever weight_decay says.
# Guess:     "weight_decay=0.1 is what AdamW applies; the start and end values only matter for a schedule of the weight
#            decay, and the style is constant". Wrong: the constant style writes end_weight_decay at every step.
# Output:    asked 0.1: optimizer 0.1, trained with 0.033
#            asked 0.2: optimizer 0.2, trained with 0.033
# Exits non-zero if the behaviour changes.
set -euo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python3.12 -m venv "$work/venv"
"$work/venv/bin/pip" install -q --disable-pip-version-check --no-deps --target "$work/wheels" \
  megatron-bridge==0.6.2 megatron-core==0.19.2
"$work/venv/bin/python" - "$work/wheels" <<'PY'
import sys, types
from pathlib import Path
from types import SimpleNamespace

wheels = Path(sys.argv[1])


def module(name, **values):
    sys.modules[name] = found = types.ModuleType(name)
    vars(found).update(values)


def code(path):
    names = {"__name__": Path(path).stem}
    exec(compile((wheels / path).read_text(), path, "exec"), names)
    return names


module("torch", Tensor=type("Tensor", (), {}))
for name in ("megatron", "megatron.core", "megatron.bridge", "megatron.bridge.training"):
    module(name)
module("megatron.core.utils", log_single_rank=lambda *args: None)
module("megatron.bridge.training.config", OptimizerConfig=SimpleNamespace, SchedulerConfig=SimpleNamespace)
helper = code("megatron/bridge/recipes/utils/optimizer_utils.py")["distributed_fused_adam_with_cosine_annealing"]
Scheduler = code("megatron/core/optimizer_param_scheduler.py")["OptimizerParamScheduler"]

seen = []
for asked in (0.1, 0.2):
    optimizer, s = helper(weight_decay=asked, max_lr=3e-4, min_lr=3e-5, lr_warmup_iters=2, lr_decay_iters=10)
    group = {"lr": optimizer.lr, "max_lr": optimizer.lr, "weight_decay": optimizer.weight_decay}
    scheduler = Scheduler(
        SimpleNamespace(param_groups=[group]), 0.0, optimizer.lr, optimizer.min_lr, s.lr_warmup_iters,
        s.lr_decay_iters, s.lr_decay_style, s.start_weight_decay, s.end_weight_decay, 10, s.weight_decay_incr_style,
    )
    scheduler.step(1)
    seen.append((optimizer.weight_decay, group["weight_decay"]))
    print(f"asked {asked}: optimizer {optimizer.weight_decay}, trained with {group['weight_decay']}")
sys.exit(seen != [(0.1, 0.033), (0.2, 0.033)])
PY
