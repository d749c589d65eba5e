"""Rules on the offload of activations, held against Megatron's own offload and recomputation in steps on a CPU."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

import pytest

from tests.oracles.proven import answers, permits

pytestmark = pytest.mark.bridge


@pytest.fixture(scope="module")
def said() -> dict[str, Any]:
    return answers("ask_offload.py")


def test_full_recompute_and_offload_end_in_the_first_backward(said: dict[str, Any]) -> None:
    """std.offload_modules.not_with_full_recompute: one microbatch in turn passes with core_attn, a pipeline does not."""
    found: dict[tuple[str, str], list[str]] = defaultdict(list)
    for case, answer in said["full"].items():
        offloaded, recompute, _ = case.split(", ")
        found[offloaded, recompute].append(answer)
    for (offloaded, recompute), got in found.items():
        values: Any = {
            "recompute": frozenset({"full"} if recompute.startswith("full") else ()),
            "offload_modules": frozenset(() if offloaded == "none" else (offloaded,)),
        }
        allowed = permits("std.offload_modules.not_with_full_recompute", **values)
        assert allowed == (set(got) == {"ok"}), (offloaded, recompute, got)
    assert "data is not allocated" in said["full"]["attn_norm, full recompute, in turn"]
    assert "Chunk mismatch" in said["full"]["core_attn, full recompute, pipeline"]


def test_a_recomputed_up_projection_needs_a_chunk_that_is_open(said: dict[str, Any]) -> None:
    """std.offload_modules.up_proj_has_chunk, for sets of offloaded modules"""
    for case, answer in said["latent"].items():
        modules = frozenset(case.split(", ")[0].split())
        values: Any = {"recompute": frozenset({"mla_up_proj"}), "offload_modules": modules, "cuda_graph": frozenset()}
        assert permits("std.offload_modules.up_proj_has_chunk", **values) == (answer == "ok"), (case, answer)
        assert answer == "ok" or "no attribute 'tensor_pop'" in answer
