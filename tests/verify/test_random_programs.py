"""Programs drawn at random, of any model, machine, task, format and pins: the real Megatron Bridge, of each release, builds
what is planned."""

from __future__ import annotations

import random
from collections.abc import Mapping
from pathlib import Path

import pytest

from moedsl.bridge.verify.client import Server
from moedsl.facts.axes import AXES
from moedsl.facts.releases import Release
from tests.helpers import random_plans, rotation, warm
from tests.helpers.programs import compiled, judged
from tests.helpers.random_plans import MACHINES, Gene
from tests.helpers.targets import OLDER, available

pytestmark = pytest.mark.bridge
PLANNED = 80 if rotation.ALL else 1
GPUS = (8, 16, 32, 64, 72, 128, 256, 512, 1024)
LENGTHS = ("4k", "8k", "16k", "32k", "64k", "128k")
BATCHES = (64, 128, 256, 512, 720, 1024, 2048)
FORMATS = ("", "precision auto", *(f"precision {w}" for a in AXES if a.name == "precision" for w in a.words))
WITHOUT_WEIGHTS = "plan.sft_without_weights"
"""The warning of a run that Bridge refuses until its weights are named."""


def _pins(dice: random.Random) -> str:
    pinned = dice.sample([a for a in AXES if not a.is_format], dice.randint(0, 3))
    return "\n".join(random_plans.pin(axis, dice) for axis in pinned)


GENES: Mapping[str, Gene] = {
    **{n: random_plans.GENES[n] for n in ("model", "phase", "tuning", "resilience", "save", "length")},
    "machines": lambda dice: f"{dice.choice(MACHINES)} x {dice.choice(GPUS)}",
    "seq": lambda dice: f"seq {dice.choice(LENGTHS)}",
    "batch": lambda dice: f"batch {dice.choice(BATCHES)}",
    "precision": lambda dice: dice.choice(FORMATS),
    "pins": _pins,
}


def runs(planned: int, also: str = "") -> dict[str, str]:
    """So many programs that have a plan, by name; `also` is a statement of each."""
    dice, out = rotation.dice(f"random programs {also}"), dict[str, str]()
    while len(out) < planned:
        text = "\n".join([random_plans.text({name: gene(dice) for name, gene in GENES.items()}), also])
        result = compiled(text)
        if not result.failed and not any(d.id == WITHOUT_WEIGHTS for d in result.diagnostics):
            out[f"program{len(out)}"] = text
    return out


@pytest.mark.timeout(3000)
def test_bridge_builds_what_is_planned(server: Server, tmp_path: Path) -> None:
    drawn = runs(PLANNED)
    for name, report in judged(server, drawn, tmp_path).items():
        assert report.ok, (drawn[name], report.to_json())


@pytest.mark.skipif(not rotation.ALL, reason="each release starts a Bridge of its own: make test-all")
@pytest.mark.timeout(3000)
@pytest.mark.parametrize("release", OLDER, ids=lambda r: r.bridge)
def test_an_older_release_builds_what_is_planned_for_it(release: Release, tmp_path: Path) -> None:
    available(release)
    drawn = runs(PLANNED // 2, f"target bridge {release.minor}")
    older = warm.server(2, release)
    try:
        for name, report in judged(older, drawn, tmp_path).items():
            assert report.ok, (drawn[name], report.to_json())
    finally:
        older.close()
