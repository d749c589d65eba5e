"""The statements that set fields of Bridge under shorter names: `lr`, `schedule`, `checkpoints`, `log` and `wandb`.

A row is a keyword: the fields of its value (under ""), then those of each option. The check reads a statement as a
`set` of these fields, the importer writes it, and editors offer it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

_DECAY = ("scheduler.start_weight_decay", "scheduler.end_weight_decay")
"""The scheduler writes these over the optimizer's weight decay (core optimizer_param_scheduler.py:300)."""
KEYWORDS: Mapping[str, Mapping[str, tuple[str, ...]]] = {
    "lr": {"": ("optimizer.lr",), "min": ("optimizer.min_lr",), "weight_decay": _DECAY},
    "schedule": {
        "": ("scheduler.lr_decay_style",), "warmup": ("scheduler.lr_warmup_iters",),
        "decay": ("scheduler.lr_decay_iters",), "wsd_decay": ("scheduler.lr_wsd_decay_iters",),
    },
    "checkpoints": {
        "": ("checkpoint.save",), "every": ("checkpoint.save_interval",), "keep": ("checkpoint.most_recent_k",),
        "load": ("checkpoint.load",),
    },
    "log": {"": ("logger.tensorboard_dir",), "every": ("logger.log_interval",)},
    "wandb": {
        "": ("logger.wandb_project",), "name": ("logger.wandb_exp_name",), "entity": ("logger.wandb_entity",),
        "dir": ("logger.wandb_save_dir",),
    },
}  # fmt: skip


def options(keyword: str) -> tuple[str, ...]:
    """Return the options of a keyword."""
    return tuple(name for name in KEYWORDS[keyword] if name)


def written(sets: Mapping[str, str]) -> Iterator[str]:
    """Write literals of fields as statements: keywords where these have them, else a `set` each."""
    left = dict(sets)
    for keyword, row in KEYWORDS.items():
        stated = {name: {left.get(path) for path in paths} for name, paths in row.items()}
        said = {name: text for name, (text, *others) in stated.items() if text is not None and not others}
        for path in (path for name in said for path in row[name]):
            del left[path]
        if said:
            yield " ".join([keyword, *(f"{name}={text}" if name else text for name, text in said.items())])
    yield from (f"set {path} = {text}" for path, text in left.items())
