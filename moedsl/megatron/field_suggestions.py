"""Suggest a field for an unknown path: an old or another name, or a typo in its section or its name.

Citations are to megatron-bridge 0.6.2.
"""

from __future__ import annotations

from collections.abc import Collection

from moedsl.classes.fields import frozen
from moedsl.diagnostics.model import Instead, suggest
from moedsl.megatron.fields import field_names, sections

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


def meant(path: str) -> tuple[str, ...]:
    """Suggest a field for an unknown dotted path; empty if nothing is near. An `Instead` has the whole path; if there
    are several, any may be meant."""
    if path in ELSEWHERE:
        known = ELSEWHERE[path]
        return (Instead(f"the field is `{known.field}` ({known.cite})", known.field),)
    section, _, name = path.partition(".")
    right = _section(section) if name else None
    if right is not None:
        return _in_section(right, name, sections()[right])
    same = [p for p in field_names() if p.rpartition(".")[2] == path.rpartition(".")[2]]
    if same:
        return tuple(Instead(f"did you mean `{p}`?", p) for p in same[:SHOWN])
    inside = suggest(path, [p for p in field_names() if p.startswith(f"{section}.")])
    return inside or suggest(path, field_names())


def _section(typed: str) -> str | None:
    """The section that is nearest to an unknown word."""
    near = () if typed in sections() else suggest(typed, [*sections()])
    return next((help.word for help in near if isinstance(help, Instead)), None)


def _in_section(section: str, name: str, names: Collection[str]) -> tuple[str, ...]:
    """Correct the section of a path, and its field if one is near."""
    if name in names:
        return (Instead(f"did you mean `{section}.{name}`?", f"{section}.{name}"),)
    return f"did you mean the section `{section}`?", *suggest(f"{section}.{name}", [f"{section}.{n}" for n in names])


def all_sections() -> str:
    """The help for a path without a near field."""
    return f"a field is `SECTION.NAME`; the sections are {', '.join(sections())}"
