"""Peaks that Megatron expects of its own functional tests, against the estimate."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from accuracy_goldens import FAR, MIB, TERMS, Golden, goldens

STATE = ("whole optimizer", "optimizer instances", "learned positions")


@pytest.fixture(scope="module")
def made() -> tuple[list[Golden], Counter[str]]:
    """The tests that are carried over, and why the others are not."""
    return goldens()


@pytest.fixture
def found(made: tuple[list[Golden], Counter[str]]) -> list[Golden]:
    return made[0]


def test_most_tests_are_carried_and_the_others_have_a_reason(made: tuple[list[Golden], Counter[str]]) -> None:
    carried, cannot = made
    assert (len(carried), cannot.total()) == (84, 18)
    assert all(cannot)


def test_peaks_are_within_the_goals(found: list[Golden]) -> None:
    """5% in the median, 10% for nine of ten; the farthest have a reason."""
    off = [abs(g.error) for g in found]
    assert np.median(off) < 0.05
    assert np.percentile(off, 90) < 0.1
    assert all(g.why for g in found if abs(g.error) > FAR)


def test_each_gpu_is_within_the_goals(found: list[Golden]) -> None:
    for gpu in ("a100_80gb", "h100", "gb200"):
        off = [abs(g.error) for g in found if g.gpu == gpu]
        assert np.median(off) < 0.05 and np.percentile(off, 85) < 0.1, gpu


def test_what_ran_fits(found: list[Golden]) -> None:
    assert not [g.id for g in found if not g.fits]


def is_plain(g: Golden) -> bool:
    """Whether only weights, gradients, optimizer state and workspaces remain after a step."""
    return not g.cost.accumulates and not g.row["cuda_graph"] and not g.row["sharding"]


def left(g: Golden) -> float:
    """What is neither state nor workspace, MiB."""
    c, s = g.cost.hardware.constants, g.stage
    more = sum(TERMS[name](g, n) for name, n in g.terms.items() if name in STATE)
    streams = 1 if "single products" in g.terms else 1 + c.te_streams
    workspaces = streams * c.te_workspace + c.torch_threads * c.torch_workspace
    return (g.after - s.weights - s.gradients - s.optimizer - more - workspaces) / MIB


@pytest.mark.parametrize("gpu", ["a100_80gb", "h100", "gb200"])
@pytest.mark.parametrize("grouped", [True, False])
def test_what_remains_after_a_step_is_the_state_and_the_workspaces(
    gpu: str, grouped: bool, found: list[Golden]
) -> None:
    """Transformer Engine's workspace and those of grouped products are counted apart, before Hopper and since."""
    plain = [g for g in found if is_plain(g) and g.gpu == gpu and grouped != ("single products" in g.terms)]
    more = [left(g) for g in plain]
    assert 5 < np.median(more) < 20
    assert np.mean(np.abs(more) < 45) > 0.8
