"""Say what a run trains with: learning rate, schedule, optimizer, length, checkpoints and logs, and which of these are
Bridge's defaults."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from attrs import frozen

from moedsl.facts import common
from moedsl.planner.decisions import Decision
from moedsl.planner.layout import Batch, Policy
from moedsl.support.json_form import JsonForm
from moedsl.support.text import counted

OWN = "nemo_experiments/"
"""The folder of runs that name none; below it each has one of its recipe's name."""
_OWN_LENGTHS = {"train.num_epochs": "{:,} times the data", "train.train_samples": "{:,} samples"}
_FIELDS = {
    "lr": "optimizer.lr", "min_lr": "optimizer.min_lr", "schedule": "scheduler.lr_decay_style",
    "warmup_steps": common.WARMUP, "optimizer": "optimizer.optimizer", "weight_decay": "scheduler.end_weight_decay",
    "steps": common.STEPS, "checkpoints": "checkpoint.save", "save_interval": "checkpoint.save_interval",
    "log_interval": "logger.log_interval", "tensorboard": "logger.tensorboard_dir", "wandb": "logger.wandb_project",
}  # fmt: skip


@frozen
class Training(JsonForm):
    """What a run trains with; null is what it does not have."""

    lr: float
    min_lr: float
    """The learning rate at the end."""
    schedule: str
    warmup_steps: int | None
    optimizer: str
    weight_decay: float
    """At the end of the run; the scheduler writes it over the optimizer's."""
    moments: str
    steps: int | None
    """Null if the run states epochs or samples."""
    length: str
    """The length of the run in words."""
    checkpoints: str | None
    """The folder to save to and to go on from."""
    save_interval: int | None
    log_interval: int
    tensorboard: str | None
    wandb: str | None
    defaults: tuple[str, ...]
    """Names of the values that are Bridge's defaults."""


def recipe_name(model: str, task: str, gpus: int, hardware: str, precision: str) -> str:
    """Name the recipe as Bridge does (recipes/utils/naming.py:34): ``MODEL_TASK_Ngpu_HARDWARE_PRECISION_config``."""
    return re.sub(r"\W", "_", f"{model}_{task}_{gpus}gpu_{hardware}_{precision}_config", flags=re.ASCII)


def build(
    name: str, task: str, batch: Batch, policy: Policy, derived: Mapping[str, Any], sets: Mapping[str, Any],
    decisions: Sequence[Decision],
) -> Training:  # fmt: skip
    """Say what the recipe called `name` trains with: what the run sets, else what rules derive, else its own values."""
    mock, adam = policy.data == "mock", _FIELDS["optimizer"]
    own: dict[str, Any] = {
        common.STEPS: common.steps(task, mock), common.WARMUP: common.warmup(task, mock),
        adam: common.COMMON[task].values[adam], _FIELDS["log_interval"]: 1,
        _FIELDS["checkpoints"]: None if mock else f"{OWN}{name}/checkpoints",
    }  # fmt: skip
    values = {**own, **derived, **sets}
    ruled = {d.name for d in decisions if d.rule and d.rule.startswith("std.bridge_default.")}
    default = ({adam} if mock else {adam, common.STEPS, common.WARMUP}) - derived.keys() | ruled
    found: dict[str, Any] = {field: values.get(path) for field, path in _FIELDS.items()}
    each = batch.global_batch * batch.seq
    for path, form in _OWN_LENGTHS.items():
        if n := sets.get(path):
            found |= {"steps": None, "length": form.format(n)}
            default -= {common.STEPS}
    if steps := found["steps"]:
        trained = f"{steps * each / 1e12:.3g}T" if steps * each >= 1e12 else f"{steps * each / 1e9:.3g}B"
        found["length"] = f"{counted(steps, 'step', ',d')} of {each / 2**20:.3g} Mi tokens ({trained})"
    defaults = tuple(field for field, path in _FIELDS.items() if path in default - sets.keys())
    return Training(moments=policy.moments, defaults=defaults, **found)


def text(t: Training) -> str:
    """Write it in one paragraph: first what the run or moedsl states, then Bridge's defaults."""
    folder, every = t.checkpoints or "", f" every {counted(t.save_interval, 'step', ',d')}" if t.save_interval else ""
    saves = f"checkpoints in {folder.partition('/')[0] if folder.startswith(OWN) else folder}{every}"
    logs = [f"{what} {where}" for what, where in (("TensorBoard in", t.tensorboard), ("W&B project", t.wandb)) if where]
    logged = f"log every {'step' if t.log_interval == 1 else f'{t.log_interval} steps'}"
    said = {
        "lr": f"lr {t.lr:g}", "min_lr": f"down to {t.min_lr:g}", "schedule": t.schedule,
        "warmup_steps": f"{counted(t.warmup_steps or 0, 'step', ',d')} of warm-up",
        "optimizer": f"{t.optimizer} with {t.moments} moments", "weight_decay": f"weight decay {t.weight_decay:g}",
        "steps": t.length, "checkpoints": saves if t.checkpoints else "nothing is saved",
        "log_interval": ", ".join([*logs, logged]),
    }  # fmt: skip
    stated = ", ".join(what for name, what in said.items() if name not in t.defaults)
    given = ", ".join(what for name, what in said.items() if name in t.defaults)
    return f"{stated}; Bridge's defaults: {given}" if given else stated
