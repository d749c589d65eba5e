"""Write the part of docs/accuracy.md on Megatron's own functional tests: their peaks against the estimate.

stdlib/calibration/goldens.jsonl has each as `import_goldens.py` read it. The language cannot say all of their
arguments; `TERMS` adds what is missing, from Megatron's code.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from attrs import frozen

from moedsl.compiler import load_stdlib
from moedsl.cost import Cost, StageMemory, parameters
from moedsl.cost.estimate import bounds
from moedsl.cost.rows import complete
from moedsl.facts.axes import BY_NAME
from moedsl.facts.facts import Hardware, Model

FILE = Path(__file__).parents[1] / "stdlib/calibration/goldens.jsonl"
MIB = 2**20
BF16 = 2
ADAM = 12
"""Bytes of a parameter's FP32 master and both moments."""
STATE = 6 + ADAM
FAR = 0.1
REASONS: Mapping[str, str] = {
    "attn_cudagraph": "torch does not count what its graphs hold between replays, the estimate does",
    "nemotron3_5_lightning": "right with 6 bytes a logit, but two runs of the whole model need 10",
}
"""Why a peak is far off, by a word of its id."""


@frozen
class Golden:
    """One test: its estimate, and its measurements."""

    id: str
    gpu: str
    cost: Cost
    row: Mapping[str, int]
    terms: Mapping[str, float]
    peak: float
    """Bytes."""
    after: float
    """Bytes that remain after a step."""
    step: float | None
    """Seconds."""

    @property
    def case(self) -> str:
        """The test without its platform."""
        return self.id.split()[0]

    @property
    def why(self) -> str:
        """Why the peak is far off; empty if that is not known."""
        return next((text for word, text in REASONS.items() if word in self.id), "")

    @property
    def stage(self) -> StageMemory:
        """The last stage, whose rank writes the measurements."""
        return self.cost.memory_report(self.row)[-1]

    @property
    def more(self) -> float:
        """Bytes of the terms that the language has no word for."""
        return sum(TERMS[name](self, number) for name, number in self.terms.items())

    @property
    def said(self) -> float:
        """The estimated peak."""
        return self.stage.total + self.more

    @property
    def error(self) -> float:
        return self.said / self.peak - 1

    @property
    def fits(self) -> bool:
        """Whether the verdict would be FITS."""
        b = bounds(self.cost, self.row)
        return b.needed[1] + self.more <= b.visible

    @property
    def parameters(self) -> int:
        """Parameters on the last rank."""
        return self.stage.params + self.stage.expert_params

    @property
    def kept(self) -> tuple[float, float]:
        """Layers whose activations the last stage keeps, times their microbatches: all, and those with experts."""
        deep = int(self.cost.microbatches(self.row)[()])
        layout = self.cost.layout_for(self.row["pp"], self.row["vpp"])
        assert layout is not None, self.id
        names, counts = parameters.of_memory(self.cost.model), parameters.memory(self.cost.model, layout, deep)[-1]
        live = {kind: float(counts[names.index(f"{kind}_live")]) for kind in ("dense", "moe")}
        return sum(live.values()), live["moe"]

    @property
    def tokens(self) -> float:
        """Tokens of a microbatch on a rank with sequence parallelism."""
        return self.row["micro_batch"] * self.cost.seq / self.row["cp"] / self.row["tp"]


TERMS: Mapping[str, Callable[[Golden, float], float]] = {
    "whole optimizer": lambda g, _: ADAM * g.parameters - g.stage.optimizer,
    "optimizer instances": lambda g, n: (n - 1) * g.stage.optimizer,
    "learned positions": lambda g, n: STATE * n * g.cost.model.hidden,
    "dropout masks": lambda g, n: n * g.kept[0] * g.tokens * g.cost.model.hidden,
    "separate activation": lambda g, _: BF16 * g.kept[1] * g.tokens * g.cost.model.topk * g.cost.model.expert_hidden,
    "single products": lambda g, _: -g.cost.hardware.constants.te_streams * g.cost.hardware.constants.te_workspace,
}
"""Bytes of what the language has no word for: optimizer state that data parallelism does not shard, or only within an
instance; a table of positions with its gradient and state; a mask of a byte after attention and after the MLP (core
fusions/fused_bias_dropout.py); the output of an activation that a separate kernel multiplies with the probabilities
(core transformer/moe/experts.py:874); and no streams of grouped products. The biases of norms are left out."""


def goldens() -> tuple[list[Golden], Counter[str]]:
    """Return the tests that can be carried, and why others cannot."""
    lines = [json.loads(line) for line in FILE.read_text(encoding="utf-8").splitlines()]
    return [_golden(line) for line in lines if "why" not in line], Counter(x["why"] for x in lines if "why" in x)


def _golden(line: Mapping[str, Any]) -> Golden:
    model = Model(name="golden", hf="", family="", **line["model"])
    cost = Cost(model, hardware(line["gpu"]), line["gpus"], routing="balanced", **line["run"])
    codes = complete({name: BY_NAME[name].encode(word) for name, word in line["layout"].items()})
    row = {name: int(code) for name, code in codes.items()}
    return Golden(
        line["id"],
        line["gpu"],
        cost,
        row,
        line["terms"],
        line["peak_mib"] * MIB,
        line["after_step_mib"] * MIB,
        line["step_s"],
    )


def hardware(name: str) -> Hardware:
    """Return a GPU of the stdlib."""
    made, _ = load_stdlib().gpu(name)
    assert made is not None, name
    return made


def functional_tests() -> Iterator[str]:
    """Yield the lines of Markdown."""
    found, cannot = goldens()
    off = np.array([abs(g.error) for g in found])
    yield (
        f"Megatron-LM expects a peak of each of its functional tests, on several platforms. {len(found)} of "
        f"{len(found) + cannot.total()} can be carried: the median error is {np.median(off):.1%}, and nine of ten are "
        f"within {np.percentile(off, 90):.1%}. {sum(g.fits for g in found)} FIT; all ran. "
        f"{sum(not g.terms for g in found)} need only what the language can say. For the others "
        "`tools/accuracy_goldens.py` adds terms such as optimizer state that is not sharded. The models are small, so "
        "what does not depend on the model counts most. Their steps are too small for the estimate of time.\n"
    )
    yield "| test | GPUs | platforms | measured, MiB | estimated, MiB | error | step, s | estimated, s |"
    yield "|---|---|---|---|---|---|---|---|"
    for name in dict.fromkeys(g.case for g in found):
        yield _row(name, [g for g in found if g.case == name])
    yield "\nFarther off than 10%:\n"
    far = [g for g in found if abs(g.error) > FAR]
    yield from (f"- `{g.case}`: {g.why}" for g in far)
    yield "\nNot carried:\n"
    yield from (f"- {n}: {why}" for why, n in cannot.most_common())


def _row(name: str, each: Sequence[Golden]) -> str:
    gpus = ", ".join(sorted({g.gpu for g in each}))
    timed = [(g.step, float(g.cost.time(g.row)[0])) for g in each if g.step]
    spans = [_span([g.peak / MIB for g in each], ",.0f"), _span([g.said / MIB for g in each], ",.0f")]
    spans += [_span([g.error for g in each], "+.1%"), *(_span(times, ".2f") for times in zip(*timed, strict=True))]
    return f"| `{name}` | {gpus} | {len(each)} | {' | '.join(spans)} |{'' if timed else ' | |'}"


def _span(values: Sequence[float], form: str) -> str:
    low, high = format(min(values), form), format(max(values), form)
    return low if low == high else f"{low} to {high}"
