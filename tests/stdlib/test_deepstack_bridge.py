"""Rules on Qwen3-VL's deepstack features, formats and offload, each held against Bridge's own code of the model."""

from __future__ import annotations

from typing import Any

import pytest

from tests.oracles.proven import answers, permits

pytestmark = pytest.mark.bridge


@pytest.fixture(scope="module")
def said(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    return answers("ask_deepstack.py", str(tmp_path_factory.mktemp("meet")))


def test_full_recompute_takes_the_mergers_gradients(said: dict[str, Any]) -> None:
    """std.deepstack.gradients_through_recompute"""
    for recompute, learned in said["recomputed_tower"].items():
        values: Any = {
            "deepstack_learns": True,
            "recompute": frozenset() if recompute == "None" else frozenset({recompute}),
        }
        mergers = any(name.startswith("deepstack_merger_list") for name in learned)
        assert permits("std.deepstack.gradients_through_recompute", **values) == mergers
        assert any(name.startswith("layers.0") for name in learned)


def test_tensor_parallel_ranks_keep_their_parts_of_the_mergers_gradients(said: dict[str, Any]) -> None:
    """std.deepstack.whole_gradients: two real ranks, with Megatron's own scatter to compare Bridge's cut with."""
    errors = said["merger_gradients"]
    for tp in (1, 2):
        allowed = permits("std.deepstack.whole_gradients", deepstack_learns=True, tp=tp)
        assert (errors[f"bridge of {tp}"] < 1e-5) == allowed
        assert errors[f"scatter of {tp}"] < 1e-5
    assert errors["bridge of 2"] > 0.1


def test_deepstack_features_need_equal_parts_of_the_sequence(said: dict[str, Any]) -> None:
    """std.vision.image_shards"""
    for seq, answer in said["shards"].items():
        allowed = permits("std.vision.image_shards", is_qwen_vl=True, cp=2, tp=2, pp=1, ep=8, seq=int(seq))
        assert allowed == (answer == "ok")
    assert {answer == "ok" for answer in said["shards"].values()} == {True, False}


def test_no_layer_of_qwen3_vl_runs_in_fp4(said: dict[str, Any]) -> None:
    """std.vision.no_fp4: the block enters no context for it, where Megatron's own block does."""
    for precision in ("mxfp8", "nvfp4"):
        assert said["formats"][f"core {precision}"]
        allowed = permits("std.vision.no_fp4", is_qwen_vl=True, precision=precision)
        assert allowed == (said["formats"][f"qwen3_vl {precision}"] == said["formats"][f"core {precision}"])


def test_the_offload_of_activations_never_begins(said: dict[str, Any]) -> None:
    """std.vision.no_activation_offload"""
    for name, begins in said["offload_begins"].items():
        values: Any = {"is_qwen_vl": name == "qwen3_vl", "offload_modules": frozenset({"core_attn"})}
        assert permits("std.vision.no_activation_offload", **values) == begins
