"""A layout in plain words as the text of a run file with everything pinned, and which laws it breaks."""

import re
from collections.abc import Mapping
from typing import Any

from moedsl.compiler import Result, compile_source
from moedsl.solver.fits import violations
from moedsl.support.resources import stdlib_dir
from moedsl.support.source import Source
from tests.helpers.paths import DATA

DEFAULTS: dict[str, Any] = {
    "task": "pretrain", "tp": 1, "pp": 1, "vpp": 1, "cp": 1, "ep": 1, "etp": 1, "precision": "bf16",
    "pipeline_layout": None,
    "recompute": [], "dispatcher": "alltoall", "cuda_graph": [], "ep_overlap": False, "delay_wgrad": False,
    "moments": "fp32", "grad_reduce": "fp32", "sharding": "optimizer", "offload": "none", "offload_modules": [], "micro_batch": 1,
    "global_batch": 256, "seq": 4096, "vlm": [],
    "adapter": "", "data": "",
}  # fmt: skip
_PINS = (
    "tp", "pp", "vpp", "cp", "ep", "etp", "micro_batch", "dispatcher", "recompute", "cuda_graph", "ep_overlap",
    "delay_wgrad", "moments", "grad_reduce", "sharding", "offload", "offload_modules",
)  # fmt: skip


def run_text(layout: Mapping[str, Any]) -> str:
    """A run file that pins every axis of a layout; `model`, `hardware` and `gpus` have no default."""
    w = {**DEFAULTS, **layout}
    lines = [
        f"model {w['model']}; {w['hardware']} x {w['gpus']}; throughput first; task {w['task']}",
        f"seq {w['seq']}; batch {w['global_batch']}; precision {w['precision']}",
        "pin " + " ".join(f"{name}={_spelled(w[name])}" for name in _PINS),
    ]
    if w["vlm"]:
        lines.append(f"vlm {' '.join(w['vlm'])}")
    if w["adapter"]:
        lines.append(f"adapter {w['adapter']}")
    if w["data"]:
        lines.append(f"data {w['data']}")
    if w["pipeline_layout"]:
        lines.append(f'pin pipeline_layout="{w["pipeline_layout"]}"')
    return "\n".join(lines) + "\n"


def variant(layout: Mapping[str, Any], facts: Mapping[str, int]) -> str:
    """A run of a model of its own: the layout's model with some facts replaced."""
    text = (stdlib_dir() / "models" / f"{layout['model']}.moe").read_text(encoding="utf-8")
    text = text.replace(f"model {layout['model']} ", "model variant ", 1)
    for fact, value in facts.items():
        text, n = re.subn(rf"\b{fact} \d+", f"{fact} {value}", text, count=1)
        assert n, fact
    return text + run_text({**layout, "model": "variant"})


def _spelled(value: Any) -> str:
    if isinstance(value, bool):
        return "on" if value else "off"
    return f"[{', '.join(value)}]" if isinstance(value, list) and value else str(value or "none")


def checked(text: str) -> Result:
    """The run as far as the checker; `use` is relative to tests/data."""
    return compile_source(Source(str(DATA / "run.moe"), text), "check")


def broken(layout: Mapping[str, Any], facts: Mapping[str, int] | None = None) -> list[str]:
    """Ids of the laws that a layout breaks, without ``std.``, or the checker's errors. `facts` replace the model's."""
    result = checked(variant(layout, facts) if facts else run_text(layout))
    if result.failed:
        return list(dict.fromkeys(d.id for d in result.diagnostics if d.is_error))
    (program,) = result.programs
    return [r.id.removeprefix("std.") for r in violations(program, layout["gpus"])]
