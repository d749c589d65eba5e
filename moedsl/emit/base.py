"""List the values of a recipe that its plan does not decide: Bridge's common function's, and defaults."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from moedsl.emit.dataset import is_mock
from moedsl.emit.settings import comparable, planned
from moedsl.emit.stated import arguments, checkpoint_folder, given, stated
from moedsl.facts.common import COMMON, COPIED
from moedsl.facts.facts import Model
from moedsl.facts.families import dataset_class, provider
from moedsl.facts.fields import Field, absent, fields, provided
from moedsl.facts.values import Call, normalise
from moedsl.planner.model.plan import Plan

_OF_TASK: Mapping[str, Mapping[str, Any]] = {
    "pretrain": {
        "checkpoint.save_interval": 500,
        "ddp.data_parallel_sharding_strategy": "optim_grads_params",
        "optimizer.adam_beta2": 0.95,
        "optimizer.lr": 3e-4,
        "optimizer.min_lr": 3e-5,
    },
    "sft": {
        "checkpoint.save_interval": 100,
        "optimizer.adam_beta2": 0.98,
        "optimizer.lr": 5e-6,
        "optimizer.min_lr": 0.0,
    },
    "peft": {
        "checkpoint.save_interval": 100,
        "optimizer.adam_beta2": 0.98,
        "optimizer.lr": 1e-4,
        "optimizer.min_lr": 0.0,
    },
}
"""Further values of the common functions, by task (bridge recipes/common.py): a recipe states its own, or no row has
them."""
_BOTH = {
    "optimizer.weight_decay": 0.1,
    "optimizer.bf16": True,
    "scheduler.lr_decay_style": "cosine",
    "scheduler.lr_wsd_decay_style": "minus_sqrt",
    "scheduler.override_opt_param_scheduler": True,
    "scheduler.start_weight_decay": 0.033,
    "scheduler.end_weight_decay": 0.033,
    "logger.log_timers_to_tensorboard": True,
    "tokenizer.pad_vocab_size": False,
}
"""What these functions, their optimizer (bridge recipes/utils/optimizer_utils.py:100) and the tokenizer's constructor
(bridge training/tokenizers/config.py:93) give to every run."""
_UNKNOWN = ("required", "factory", "unknown")
"""What the list of fields has in place of a value that it does not know."""


def values(plan: Plan, model: Model) -> dict[str, Any]:
    """The value of each field of the recipe, where it is known without Bridge."""
    settings = [s for _, group in stated(plan) for s in group]
    built = {s.path: s.value for s in settings if isinstance(s.value, Call)}
    built |= {path: v for s in settings for path, v in arguments(s.path, s.value) if isinstance(v, Call)}
    bridge = plan.target.bridge
    classes = {"model": provider(model), "dataset": dataset_class(model.vision is not None, plan.task, is_mock(plan))}
    classes |= {path: call.name for path, call in built.items() if path not in classes}
    known = {
        f.path: _plain(f.path, f.others.get(classes.get(f.path.rpartition(".")[0], ""), f.default))
        for f in fields(bridge).values()
        if _has_default(f, classes, built, bridge)
    }
    known |= {f"model.{name}": _plain(name, value) for name, value in provided(model.hf, bridge).items()}
    common = {path: v for path, v in given(planned(plan)).items() if path not in COPIED.values()}
    if classes["dataset"] != COMMON[plan.task].dataset:
        common = {path: v for path, v in common.items() if not path.startswith("dataset.")}
    known |= {**_BOTH, **_OF_TASK[plan.task], "dataset": classes["dataset"], "model.hf_model_revision": plan.revision}
    known |= {path: _plain(path, value) for path, value in common.items()}
    known |= {section: None for section in absent(bridge) if "." not in section}
    folder = checkpoint_folder(plan)
    known |= {"checkpoint.save": folder, "checkpoint.load": folder, "logger.log_interval": 1}
    for path, call in built.items():
        known |= {path: call.name} | {name: _plain(name, v) for name, v in arguments(path, call)}
    own = [s for s in settings if s.path not in built]
    known |= {s.path: _plain(s.path, s.value) if comparable(s) else "unknown" for s in own}
    return {path: value for path, value in known.items() if value not in _UNKNOWN}


def _has_default(field: Field, classes: dict[str, str], built: Collection[str], bridge: str) -> bool:
    """Whether a field has the default of its class: its section is built from that class, and not by a function."""
    section = field.path.rpartition(".")[0]
    made = section != "mixed_precision" and (section not in absent(bridge) or section in built)
    return made and (not field.classes or classes.get(section) in field.classes)


def _plain(path: str, value: Any) -> Any:
    """The value as JSON; a dtype by its name."""
    plain = value.name if isinstance(value, Call) else normalise(path, value)
    return plain.removeprefix("torch.") if isinstance(plain, str) else plain
