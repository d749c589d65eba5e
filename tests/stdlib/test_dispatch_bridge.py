"""Laws of DeepEP and HybridEP, which are in no wheel, held against what Megatron-Core hands to them."""

from __future__ import annotations

from typing import Any

import pytest

from tests.helpers.layouts import broken
from tests.oracles.proven import answers, permits

pytestmark = pytest.mark.bridge


@pytest.fixture(scope="module")
def said() -> dict[str, Any]:
    return answers("ask_dispatch.py")


def test_a_group_lies_in_nodes_as_the_environment_says(said: dict[str, Any]) -> None:
    """std.dispatch.hybridep_domain and std.dispatch.hybridep_nodes, in Megatron-Core's order of ranks."""
    for case, whole in said["groups"].items():
        etp, ep = map(int, case.split())
        values = {"dispatcher": "hybridep", "gpus": 48, "etp": etp, "ep": ep, "nvlink_domain": 8, "gpus_per_node": 8}
        laws = ("std.dispatch.hybridep_domain", "std.dispatch.hybridep_nodes")
        assert all(permits(law, **values) for law in laws) == whole, case


def test_hybridep_makes_a_buffer_for_all_tokens_of_a_rank(said: dict[str, Any]) -> None:
    """std.dispatch.hybridep_depth: its queue pairs hold three requests for each, and one more, of fewer than 65,536."""
    assert said["tokens"] == {str(n): n for n in (64, 21824, 21845)}
    for tokens in (21844, 21845):
        values = {"dispatcher": "hybridep", "nvlink_domain": 8, "etp": 1, "rank_tokens": tokens}
        assert permits("std.dispatch.hybridep_depth", ep=16, **values) == (3 * tokens + 1 < 65536)
        assert permits("std.dispatch.hybridep_depth", ep=8, **values)


def test_deepep_takes_a_token_to_topk_times_etp_places(said: dict[str, Any]) -> None:
    """std.dispatch.deepep_topk"""
    for case, places in said["topk"].items():
        topk, etp = map(int, case.split())
        assert permits("std.dispatch.deepep_topk", dispatcher="deepep", topk=topk, etp=etp) == (places <= 32), case


def test_the_settings_of_deepep_are_those_of_the_whole_group(said: dict[str, Any]) -> None:
    """std.dispatch.deepep_sizes: Megatron-Core asks for the settings of ETP x EP ranks, twice, whatever their number."""
    assert said["settings"] == {str(n): [n, n] for n in (2, 3, 6, 8, 12)}
    for ranks, known in ((2, True), (3, False), (6, False), (8, True), (12, False), (16, True)):
        assert permits("std.dispatch.deepep_sizes", dispatcher="deepep", ep=ranks, etp=1) == known


@pytest.mark.parametrize(("ep", "laws"), [(2, []), (6, ["dispatch.hybridep_nodes"])])
def test_a_group_within_one_node(ep: int, laws: list[str]) -> None:
    """Where all GPUs are in one domain, no group leaves it."""
    layout = {"model": "nemotron_3_nano", "hardware": "h100", "dispatcher": "hybridep", "ep": ep, "global_batch": 288}
    assert broken({**layout, "gpus": 12}, {"experts": 126}) == laws
    assert broken({**layout, "gpus": 6}, {"experts": 126}) == []


def test_a_capacity_leaves_nothing_to_read_on_the_host(said: dict[str, Any]) -> None:
    """std.cuda_graph.whole_graph_dispatcher"""
    assert said["host_reads"] == {"dropless": "before_finish", "padded": "no_sync"}
    for padded in (False, True):
        values: Any = {"cuda_graph": frozenset({"full_iteration"}), "drop_and_pad": padded}
        assert permits("std.cuda_graph.whole_graph_dispatcher", dispatcher="alltoall", **values) == padded
        assert not permits("std.cuda_graph.whole_graph_dispatcher", dispatcher="deepep", **values)
