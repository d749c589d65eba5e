"""Compare measurements of a GPU with what the estimate's formulas have for the same shape.

    python tools/gpu_against_estimate.py [FILE ...]      prints a table; the default is stdlib/calibration/measured

The estimate is asked for a layer that has the measured shape and nothing else. Measurements of code that Megatron does
not run (`by` torch, except copies and fused attention) are not compared.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import Any

import attrs
import numpy as np
from gpu.case import FLA, MEGATRON, TE, TORCH
from measure_gpu import MEASURED

from moedsl.compiler import load_stdlib
from moedsl.cost import compute
from moedsl.cost.rows import Levels, Table, complete
from moedsl.cost.step import LAYER
from moedsl.facts.axes import BY_NAME, PRECISION
from moedsl.facts.facts import Hardware, Model

WITHIN = {
    "copy": 0.15, "products": 0.30, "attention": 0.20, "delta_nets": 0.30, "passes": 0.50, "permutation": 0.50,
    "host": 0.50,
}  # fmt: skip
"""How far the slower of estimate and measurement may be above the faster, by part. The shares are fitted to whole
steps, in which other work runs at the same time; a part alone is faster."""
RUN_BY = {"copy": {TORCH}, "attention": {TE, TORCH}}
"""Libraries whose measurements are compared; for other parts those that Megatron runs."""
PARTS = {
    "experts": ("moe", ("experts", "cast", "cast_back")),
    "gqa": ("dense", ("core",)),
    "mla": ("dense", ("core",)),
    "delta_net": ("delta", ("scan",)),
    "swiglu": ("moe", ("activation",)),
    "cast": ("dense", ("quantise",)),
    "permutation": ("moe", ("permute",)),
    "norm": ("dense", ("norm", "residual")),
}
"""The kind of layer and the parts of `compute.Work` for what is measured."""
MODULES = {"attention": "host_attention", "router": "host_router", "delta_net": "host_delta"}
"""The constant for the launches of a module."""
NORMS = 2
"""Norms of a dense layer."""
BARE = Model(
    "measured", hf="", family="", layers=1, hidden=1, vocab=1, heads=1, query_groups=1, head_dim=1, ffn_hidden=1,
    experts=1, topk=1, expert_hidden=1,
)  # fmt: skip
FEW = 4096
"""The estimate is too fast for grouped products of fewer tokens: of a rank's in BF16, whose kernels then wait for each
other, and of each expert's in 8 bits, where kernels of its own quantise them, in 5 to 20 us, which no constant has."""
FACTS = {field.name for field in attrs.fields(Model)}


@attrs.frozen
class Compared:
    """One measurement and the estimate for it."""

    line: Mapping[str, Any]
    estimated: float

    @property
    def ratio(self) -> float:
        return self.estimated / self.line["seconds"]

    @property
    def agrees(self) -> bool:
        return max(self.ratio, 1 / self.ratio) <= 1 + WITHIN[self.line["part"]]

    @property
    def few(self) -> bool:
        """Whether it is a product of so few tokens that the estimate is known to be too fast."""
        if self.line["part"] != "products":
            return False
        tokens, local = (self.line["shape"][name] for name in ("tokens", "local_experts"))
        return tokens < FEW * (1 if self.line["precision"] == "bf16" else local)


def compared(files: Sequence[Path]) -> list[Compared]:
    """Compare each line that Megatron's code or a fused kernel took."""
    lines = [json.loads(line) for file in files for line in file.read_text(encoding="utf-8").splitlines()]
    judged = [line for line in lines if line["by"] in RUN_BY.get(line["part"], {TE, FLA, MEGATRON})]
    return [Compared(line, estimated(line, hardware(line["device"]))) for line in judged]


def hardware(device: str) -> Hardware:
    """Return the facts of the GPU with this name of torch.cuda."""
    found = load_stdlib().gpu_called(device)
    if found is None:
        raise SystemExit(f"no hardware of the standard library has the device {device!r}")
    return found


def estimated(line: Mapping[str, Any], hw: Hardware) -> float:
    """Return the estimate's seconds for a measured line."""
    shape, what = line["shape"], line["what"]
    if line["part"] == "copy":
        host = hw.host_link * hw.constants.host_copies
        return 2 * shape["bytes"] / hw.hbm if what == "hbm" else shape["bytes"] / host
    local = shape.get("local_experts", 0)
    facts = {name: value for name, value in shape.items() if name in FACTS}
    m = attrs.evolve(BARE, **({"experts": local} if local else {}), **facts)
    t = _row(line["precision"])
    if line["part"] == "host":
        return _host(m, hw, t, what, line)
    if what == "mla":
        m = attrs.evolve(m, attention="mla", query_groups=m.heads)
    if what == "delta_net":
        m = attrs.evolve(m, linear_every=2)
    kind, parts = PARTS[what]
    work = compute.work(m, hw, t, shape.get("seq") or shape["tokens"], 1.0)
    nothing = {field.name: np.zeros(1) for field in attrs.fields(compute.Work)}
    only = compute.Work(**nothing | {name: getattr(work, name) for name in parts})
    forward = line["direction"] == "forward"
    seconds = compute.forward(m, only) if forward else compute.backward(m, hw.constants, only)
    return float(seconds[kind][0]) / (NORMS if what == "norm" else 1)


def _row(precision: str) -> Table:
    row = {"precision": BY_NAME["precision"].encode(precision), "captured": 0}
    return Levels.of({**complete(row), "captured": np.asarray(0)}, LAYER).table(LAYER)


def _host(m: Model, hw: Hardware, t: Table, what: str, line: Mapping[str, Any]) -> float:
    """Return the seconds of launches of a whole layer or of one module, or those in which the GPU waits."""
    if line["direction"] == "idle":
        return float(compute.idle(m, hw, t)[what][0])
    if what in MODULES:
        k = hw.constants
        launches = k.by("launches", PRECISION)[PRECISION.index(line["precision"])]
        return getattr(k, MODULES[what]) * compute.slower(hw) * launches
    return float(compute.host(m, hw, t)[what][0])


def table(found: Sequence[Compared]) -> Iterator[str]:
    """Write lines of Markdown: for each part and direction how the estimate compares, and what is outside."""
    yield "| device | part | direction | precision | tokens | measurements | estimate over measured, median | outside |"
    yield "|---|---|---|---|---|---|---|---|"
    keys = [(*(c.line[name] for name in ("device", "part", "direction", "precision")), _tokens(c)) for c in found]
    for key in dict.fromkeys(keys):
        each = [c for c, k in zip(found, keys, strict=True) if k == key]
        out = sum(not c.agrees for c in each)
        yield f"| {' | '.join(key)} | {len(each)} | {median(c.ratio for c in each):.2f} | {out} |"


def _tokens(c: Compared) -> str:
    return "few" if c.few else "many" if c.line["part"] == "products" else ""


if __name__ == "__main__":
    print("\n".join(table(compared([Path(name) for name in sys.argv[1:]] or sorted(MEASURED.glob("*.jsonl"))))))
