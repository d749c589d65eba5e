"""The field that a name means which is none: old and other names, fields of another section, then a did-you-mean.

Citations are to megatron-bridge 0.6.2.
"""

from __future__ import annotations

from attrs import frozen

from moedsl.bridge.fields import field_names
from moedsl.diagnostics import Instead
from moedsl.infer import suggest

SHOWN = 3
"""Fields of one name that are listed."""


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
"""Names that recipes use for fields which are called otherwise."""


def meant(name: str) -> tuple[str, ...]:
    """The help for a dotted name that is no field; empty where nothing is near it."""
    known = ELSEWHERE.get(name)
    if known is not None:
        return (Instead(f"the field is `{known.field}` ({known.cite})", known.field),)
    section, _, last = name.rpartition(".")
    fields = field_names()
    same = [n for n in fields if n.rpartition(".")[2] == last]
    if len(same) == 1:
        return (Instead(f"did you mean `{same[0]}`?", same[0]),)
    if same:
        return (f"a field of other sections: {', '.join(f'`{n}`' for n in same[:SHOWN])}",)
    return suggest(name, [n for n in fields if n.startswith(f"{section}.")] or fields)
