"""Suggest a field for an unknown path: an old or another name, or a typo in its section or its name.

Citations are to megatron-bridge 0.6.2.
"""

from __future__ import annotations

from collections.abc import Collection

from attrs import frozen

from moedsl.facts.fields import called, field_names, sections
from moedsl.support.diagnostics import Instead, suggest

SHOWN = 3
"""The most fields of one name to list."""


@frozen
class Meant:
    """A field, and the line of NVIDIA's code that sets it under the other name."""

    field: str
    cite: str


ELSEWHERE = {
    "model.moe_a2a_overlap": Meant(
        "comm_overlap.overlap_moe_expert_parallel_comm", "bridge perf_recipes/qwen_vl/common.py:109"
    ),
    "model.fp8_param_gather": Meant("mixed_precision.fp8_param_gather", "bridge training/mixed_precision.py:61"),
    "scheduler.max_lr": Meant("optimizer.lr", "bridge diffusion/recipes/nemotron_labs_diffusion/ar_to_dlm.py:363"),
}
"""Names that recipes use for fields with another name."""
OTHER_TOOLS = {
    **dict.fromkeys(("max_lr", "learning_rate", "base_lr", "peak_lr"), "lr"),
    **dict.fromkeys(("min_learning_rate", "lr_min", "warmup_min_lr"), "min_lr"),
    **dict.fromkeys(("clip", "max_grad_norm", "grad_clip", "gradient_clip", "gradient_clipping", "gradient_clip_val"),
                    "clip_grad"),
    **dict.fromkeys(("wd", "decay"), "weight_decay"),
    **dict.fromkeys(("beta1", "beta_1"), "adam_beta1"),
    **dict.fromkeys(("beta2", "beta_2"), "adam_beta2"),
    **dict.fromkeys(("eps", "epsilon", "adam_epsilon"), "adam_eps"),
    **dict.fromkeys(("iters", "iterations", "steps", "max_steps", "max_iters", "train_steps", "max_train_steps",
                     "num_steps", "num_training_steps", "total_steps", "total_num_steps"), "train_iters"),
    **dict.fromkeys(("warmup", "warmup_steps", "warmup_iters", "num_warmup_steps", "warmup_num_steps"),
                    "lr_warmup_iters"),
    **dict.fromkeys(("epoch", "epochs", "num_train_epochs"), "num_epochs"),
    **dict.fromkeys(("warmup_ratio", "warmup_fraction"), "lr_warmup_fraction"),
    **dict.fromkeys(("lr_scheduler", "lr_scheduler_type", "lr_schedule", "decay_style"), "lr_decay_style"),
    **dict.fromkeys(("save_every", "save_steps", "save_freq", "every_n_train_steps"), "save_interval"),
    **dict.fromkeys(("checkpoint.dir", "checkpoint.path", "output_dir", "save_dir", "checkpoint_dir"), "save"),
    **dict.fromkeys(("resume_from", "resume_from_checkpoint"), "load"),
    **dict.fromkeys(("save_total_limit", "save_top_k", "keep_last"), "most_recent_k"),
    **dict.fromkeys(("log_every", "log_steps", "log_freq", "logging_steps", "log_every_n_steps", "steps_per_print"),
                    "log_interval"),
    **dict.fromkeys(("logger.dir", "logging_dir"), "tensorboard_dir"),
    **dict.fromkeys(("eval_every", "eval_steps", "eval_freq", "val_check_interval"), "eval_interval"),
    **dict.fromkeys(("num_hidden_layers", "n_layers"), "num_layers"),
    **dict.fromkeys(("router_aux_loss_coef", "aux_loss_alpha", "aux_loss_coeff"), "moe_aux_loss_coeff"),
    **dict.fromkeys(("num_experts_per_tok", "num_experts_per_token", "top_k", "topk"), "moe_router_topk"),
    "num_key_value_heads": "num_query_groups",
    "intermediate_size": "ffn_hidden_size",
    "moe_intermediate_size": "moe_ffn_hidden_size",
    "rms_norm_eps": "layernorm_epsilon",
    "rope_theta": "rotary_base",
    "swiglu": "gated_linear_unit",
    "tie_word_embeddings": "share_embeddings_and_output_weights",
    "capacity_factor": "moe_expert_capacity_factor",
}  # fmt: skip
"""Names of fields in other trainers (Hugging Face, DeepSpeed, PyTorch), whole or the last part, with the last part of
Bridge's name."""


def meant(path: str) -> tuple[str, ...]:
    """Suggest a field for an unknown dotted path; empty if nothing is near. An `Instead` has the whole path; if there
    are several, any may be meant."""
    if path in ELSEWHERE:
        known = ELSEWHERE[path]
        return (Instead(f"the field is `{known.field}` ({known.cite})", known.field),)
    if other := _of_another_tool(path):
        return tuple(Instead(f"the field is `{p}`", p) for p in other)
    section, _, name = path.partition(".")
    right = _section(section) if name else None
    if right is not None:
        return _in_section(right, name, sections()[right])
    same = called(path.rpartition(".")[2])
    if same:
        return tuple(Instead(f"did you mean `{p}`?", p) for p in same[:SHOWN])
    if section in sections():
        return _inside(section, path.removeprefix(f"{section}."))
    return suggest(path, field_names())


def last_name(path: str) -> str:
    """The last part of the name of Bridge's field that is called so in another trainer; else the path's own."""
    last = path.rpartition(".")[2]
    return OTHER_TOOLS.get(path) or OTHER_TOOLS.get(last, last)


def _of_another_tool(path: str) -> list[str]:
    """The fields that a name of another trainer may mean: that of its section, if it has one."""
    last = last_name(path)
    named = called(last) if last != path.rpartition(".")[2] else []
    same = f"{path.partition('.')[0]}.{last}"
    return [same] if same in named else named[:SHOWN]


def _section(typed: str) -> str | None:
    """The section that is nearest to an unknown word."""
    near = () if typed in sections() else suggest(typed, [*sections()])
    return next((help.word for help in near if isinstance(help, Instead)), None)


def _in_section(section: str, name: str, names: Collection[str]) -> tuple[str, ...]:
    """Correct the section of a path, and its field if one is near."""
    if name in names:
        return (Instead(f"did you mean `{section}.{name}`?", f"{section}.{name}"),)
    return f"did you mean the section `{section}`?", *suggest(f"{section}.{name}", [f"{section}.{n}" for n in names])


def _inside(section: str, name: str) -> tuple[str, ...]:
    """The field of a section with a near name, else those with all words of the name in theirs, the shortest first."""
    names = [p.removeprefix(f"{section}.") for p in field_names() if p.startswith(f"{section}.")]
    if near := suggest(name, names):
        found = [help.word for help in near if isinstance(help, Instead)]
    else:
        words = {*name.split("_")}
        found = sorted((n for n in names if words <= {*n.split("_")}), key=lambda n: (len(n), n))[:SHOWN]
    return tuple(Instead(f"did you mean `{section}.{n}`?", f"{section}.{n}") for n in found)


def all_sections() -> str:
    """The help for a path without a near field."""
    return f"a field is `SECTION.NAME`; the sections are {', '.join(sections())}"
