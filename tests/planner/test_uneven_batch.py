"""A batch that divides badly is told so, with what near batches buy; each figure is that of a compile of its own."""

from __future__ import annotations

import re

import pytest

from moedsl.support.diagnostics import Diagnostic
from tests.helpers import rotation
from tests.helpers.programs import compiled, diagnosed

RUN = "qwen3_30b_a3b; h100 x 64; seq 4k; "


def warned(text: str) -> list[Diagnostic]:
    return [d for d in diagnosed(RUN + text) if d.id == "plan.uneven_batch"]


def figures(text: str) -> tuple[int, float]:
    """Data parallelism, and tokens a second and GPU."""
    (plan,) = compiled(RUN + text).plans
    return plan.layout.dp, plan.estimate.tokens_per_s_per_gpu


@pytest.mark.parametrize("batch", rotation.some("near batches", [7, 63, 100], 1))
def test_near_batches_are_compiles_of_their_own(batch: int) -> None:
    (found,) = warned(f"batch {batch}")
    dp, speed = figures(f"batch {batch}")
    assert f"data parallelism to {dp}, the greatest common divisor of {batch} sequences and 64 GPUs" in found.message
    buys = {n: said for n, said in found.values.items() if n != "global_batch"}
    assert buys
    helps = [h.removeprefix("write `").rstrip("`") for h in found.help]
    gained: list[str] = []
    for other, said in buys.items():
        more, faster = figures(other)
        stated = re.fullmatch(r"dp (\d+) and ([\d.]+)x the tokens a second", str(said))
        assert stated and int(stated[1]) == more > dp
        assert float(stated[2]) == pytest.approx(faster / speed, abs=0.006)
        gained += [other] if faster >= 1.05 * speed else []
    assert gained == helps and found.severity == ("warning" if helps else "note")


def test_it_points_at_the_batch_and_says_what_to_write() -> None:
    text = RUN + "batch 63"
    (found,) = warned("batch 63")
    span = found.labels[0].span
    assert text[span.start : span.end] == "batch 63" and found.severity == "warning"
    assert any(fix.text == "batch 64" for fix in found.fixes)


@pytest.mark.parametrize(
    "text",
    [
        "batch 64",
        "batch 32",  # twice the GPUs' share is another experiment
        "throughput first",  # a default batch divides
        "batch 63; pin tp=8 pp=8 cp=1",  # the pins leave one replica
        "sweep batch in 63, 64",
    ],
)
def test_nothing_is_said_of(text: str) -> None:
    assert warned(text) == []


def test_a_pinned_microbatch_counts() -> None:
    """126 sequences in microbatches of 2 are 63 microbatches."""
    (found,) = warned("batch 126; pin micro_batch=2")
    assert "63 microbatches of 2 and 64 GPUs" in found.message
    assert "batch 128" in found.values


def test_the_phases_of_a_workflow_say_it_once() -> None:
    assert len({d.message for d in warned("batch 63; workflow")}) == len(warned("batch 63; workflow"))
