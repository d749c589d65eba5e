"""Process groups from a layout: Megatron-Core's documented example, and what holds of any mesh."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moedsl.facts.machines import rank_groups

DENSE = ("TP", "CP", "DP", "DP_CP", "PP", "TP_CP", "TP_PP")
EXPERT = ("EP", "ETP", "ETP_EP", "EDP")


def layout(*dense: int, **sizes: int) -> dict[str, int]:
    """Sizes of tp cp dp pp in that order, others by name; what is not given is 1."""
    ones = dict.fromkeys(("tp", "cp", "dp", "pp", "ep", "etp", "edp"), 1)
    return ones | dict(zip(ones, dense, strict=False)) | sizes


def test_the_example_of_megatron_core() -> None:
    """parallel_state.initialize_model_parallel's docstring: 16 GPUs, tensor 2, pipeline 4."""
    groups = rank_groups(layout(tp=2, dp=2, pp=4, ep=1, etp=2, edp=2))
    assert groups["DP"] == [[0, 2], [1, 3], [4, 6], [5, 7], [8, 10], [9, 11], [12, 14], [13, 15]]
    assert groups["TP"] == [[i, i + 1] for i in range(0, 16, 2)]
    assert groups["PP"] == [[0, 4, 8, 12], [1, 5, 9, 13], [2, 6, 10, 14], [3, 7, 11, 15]]


def test_both_meshes_hold_the_same_ranks_or_it_is_refused() -> None:
    with pytest.raises(ValueError, match="8 ranks, the expert mesh 4"):
        rank_groups(layout(dp=8, ep=4))


sizes = st.sampled_from([1, 2, 3, 4])


@given(sizes, sizes, sizes, sizes, st.booleans())
def test_every_family_covers_the_world_once(tp: int, cp: int, dp: int, pp: int, pp_first: bool) -> None:
    world = tp * cp * dp * pp
    groups = rank_groups(layout(tp, cp, dp, pp, ep=tp * cp, edp=dp), pp_first)
    for name in (*DENSE, *EXPERT):
        assert sorted(rank for group in groups[name] for rank in group) == list(range(world))


@given(sizes, sizes, sizes, sizes)
def test_two_axes_meet_in_one_rank(tp: int, cp: int, dp: int, pp: int) -> None:
    groups = rank_groups(layout(tp, cp, dp, pp, ep=tp * cp, edp=dp))
    for first, second in (("TP", "DP_CP"), ("DP", "TP_CP"), ("PP", "TP"), ("EP", "EDP")):
        assert all(len(set(a) & set(b)) <= 1 for a in groups[first] for b in groups[second])
