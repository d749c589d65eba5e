"""How samples fill sequences: against Bridge's own packing, and by hand."""

from __future__ import annotations

import json
import random
from collections import Counter
from pathlib import Path

import pytest

from moedsl.facts.fine_tuning import GROUPS, filled, groups
from tests.helpers import bridge_process
from tests.helpers.paths import ROOT

SHAPES = {
    "short": [int(random.Random(i).lognormvariate(5.5, 0.8)) + 1 for i in range(3000)],
    "long": [int(random.Random(i).uniform(900, 4096)) for i in range(3000)],
    "two kinds": [2500 if i % 3 else 200 for i in range(3000)],
    "cut": [int(random.Random(i).lognormvariate(7.5, 1.0)) + 1 for i in range(3000)],
}


@pytest.mark.bridge
@pytest.mark.parametrize("name", SHAPES)
def test_packs_are_as_full_as_those_of_bridge(name: str, tmp_path: Path) -> None:
    lengths = [min(n, 4096) for n in SHAPES[name]]
    (tmp_path / "asked.json").write_text(json.dumps([lengths, 4096]))
    done = bridge_process.run(str(ROOT / "tests/oracles/ask_data.py"), "packs", str(tmp_path))
    assert done.returncode == 0, done.stderr[-4000:]
    packs = json.loads(done.stdout)
    held = filled(groups(Counter(SHAPES[name])), 4096, True, 1)
    assert held.useful == pytest.approx(sum(map(sum, packs)) / len(packs) / 4096, abs=0.03)
    assert held.samples == pytest.approx(len(lengths) / len(packs), rel=0.05)
    assert held.span == pytest.approx(sum(n * n for n in lengths) / sum(lengths), rel=0.05)


@pytest.mark.parametrize("name", SHAPES)
def test_groups_keep_the_mean(name: str) -> None:
    made = groups(Counter(SHAPES[name]))
    assert len(made) == GROUPS and made == sorted(made)
    assert sum(made) / GROUPS == pytest.approx(sum(SHAPES[name]) / len(SHAPES[name]), abs=0.5)
    assert groups({7: 3}) == [7] * GROUPS


def test_padding_by_hand() -> None:
    assert filled([1024, 3072], 4096, False, 1).useful == 0.5
    assert filled([9000], 4096, False, 1).useful == filled([9000], 4096, True, 1).useful == 1
    padded = filled([3], 8, True, 4)
    assert (padded.useful, padded.samples, padded.span) == (6 / 8, 2, 4)
