"""Ranks on machines, against counts that are made one rank at a time."""

import json
import random
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moedsl.facts.fine_tuning import GROUPS, filled, groups
from moedsl.facts.machines import Machines, machines, rank_groups, rows, spans
from tests.helpers import bridge_process
from tests.helpers.paths import ROOT
from tests.helpers.tables import table_of


@pytest.mark.parametrize(
    "ep, per_node, domain, used", [(64, 4, 72, 64), (32, 4, 72, 64), (8, 4, 72, 72), (128, 4, 72, 72), (16, 8, 8, 8)]
)
def test_a_job_takes_as_much_of_a_domain_as_expert_groups_fill(ep: int, per_node: int, domain: int, used: int) -> None:
    assert machines({"ep": ep, "etp": 1}, 1152, per_node, domain).domain == used


@pytest.mark.parametrize("ep, nodes, racks, used", table_of("schema", "machines: racks"))
def test_a_job_takes_as_much_of_a_rack_as_expert_groups_fill(ep: int, nodes: int, racks: int, used: int) -> None:
    made = machines({"ep": ep, "etp": 1}, nodes * 8, 8, 8, racks)
    assert made.rack == used * 8


def placed(made: Machines, gpus: int, whole: int, rack_gpus: int) -> list[int]:
    """The rack of each rank by filling machines one GPU at a time: domains in order, each from the start of a rack."""
    out: list[int] = []
    rack, in_rack, in_domain = 0, 0, 0
    for _ in range(gpus):
        if in_domain == made.domain:
            in_domain = 0
            started_anew = rack_gpus < whole or in_rack + whole > rack_gpus // whole * whole
            in_rack += 0 if rack_gpus < whole else whole - made.domain
            if started_anew:
                rack, in_rack = rack + (in_rack > 0), 0
        if in_rack == rack_gpus:
            rack, in_rack = rack + 1, 0
        out.append(rack)
        in_rack, in_domain = in_rack + 1, in_domain + 1
    return out


@pytest.mark.parametrize("racks", [9, 18, 36, 40])
@pytest.mark.parametrize("ep", [8, 32, 64])
def test_racks_hold_whole_nvlink_domains_or_parts_of_one(racks: int, ep: int) -> None:
    """GB200: domains of 18 nodes in racks of half of one (two racks share a domain), of one, and of two."""
    made = machines({"ep": ep, "etp": 1}, 512, 4, 72, racks)
    assert made.racks(rows({**ONES, "dp": 512}, "dp")[0]).tolist() == placed(made, 512, 72, racks * 4)


ONES = dict.fromkeys(("tp", "cp", "dp", "pp", "ep", "etp", "edp"), 1)
SIZES = st.sampled_from([1, 2, 3, 4])


@given(SIZES, SIZES, SIZES, SIZES, st.integers(1, 5), st.sampled_from([1, 2, 4]))
def test_what_a_group_spans_is_counted_rank_by_rank(tp: int, cp: int, dp: int, pp: int, racks: int, rails: int) -> None:
    layout = {**ONES, "tp": tp, "cp": cp, "dp": dp, "pp": pp, "ep": tp * cp, "edp": dp}
    on = Machines(4, 4, 4 * racks, rails)
    groups = rank_groups(layout)
    for axes, name in ((("dp",), "DP"), (("pp",), "PP"), (("etp", "ep"), "ETP_EP"), (("edp",), "EDP")):
        each = rows(layout, *axes)
        assert sorted(sorted(row) for row in each.tolist()) == groups[name]
        assert spans(each, on.racks).tolist() == [len({r // (4 * racks) for r in row}) for row in each.tolist()]
        assert spans(each, on.on_rails).tolist() == [len({r % 4 // (4 // rails) for r in row}) for row in each.tolist()]


# How samples fill sequences: against Bridge's own packing, and by hand.

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
