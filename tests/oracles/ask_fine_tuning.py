"""Ask Bridge and Megatron-Core what a step of fine-tuning does with samples of a pack and with frozen weights.

Prints JSON: `packed` and `loss_mask` say whether the model is told the boundaries of samples and the mask of the loss, by
"overlapped" and "plain" schedule; `embedding` whether the overlapped schedule's backward pass ends, by whether it is
frozen; `recomputed` whether an adapter inside a recomputed module has a gradient, and `norm` how the backward pass through
an adapter after a recomputed norm ends, by whether the input needs one.
"""

import json
from collections.abc import Generator
from contextlib import contextmanager, nullcontext
from types import SimpleNamespace
from typing import Any
from unittest.mock import MagicMock, patch

import torch
from megatron.bridge.training import gpt_step
from megatron.core.pipeline_parallel.utils import ScheduleNode
from megatron.core.tensor_parallel import random


class Told:
    """A model that keeps the names of what it is given."""

    def __init__(self) -> None:
        self.names: set[str] = set()

    def __call__(self, **given: Any) -> None:
        self.names = {*given}

    def build_schedule_plan(self, *_: Any, **given: Any) -> None:
        self.names = {*given}


def told(overlapped: bool) -> set[str]:
    """The names of what Bridge's step for text gives the model, for a batch with the boundaries of samples."""
    config = SimpleNamespace(mtp_num_layers=1, overlap_moe_expert_parallel_comm=True, is_hybrid_model=False)
    model = Told()
    others = {n: MagicMock() for n in ("accumulate_flops_metadata", "get_pg_collection", "get_model_chunk_vp_stage")}
    own = {"get_model_config": lambda _: config, "get_packed_seq_params": lambda found: found}
    with patch.multiple(gpt_step, **others, **own):
        batch = (*("tokens", "labels", "loss_mask"), None, "position_ids", {"cu_seqlens_q": "boundaries"})
        gpt_step._forward_step_common(MagicMock(), None, model, overlapped, _get_batch_fn=lambda *_, **__: batch)
    return model.names


class Node(ScheduleNode):
    """A node of the schedule on a CPU, which has no streams."""

    @contextmanager
    def stream_acquire_context(self, name: str | None = None) -> Generator[None]:
        yield


def ends(frozen: bool) -> bool:
    """Whether the backward pass of a layer and then of the embedding ends."""
    embedding, adapter = torch.nn.Embedding(8, 4), torch.nn.Linear(4, 4)
    embedding.requires_grad_(not frozen)
    before = Node(lambda: embedding(torch.arange(3)).contiguous(), None, None, name="pre_process")
    layer = Node(adapter, None, None, name="layer")
    out = layer.forward(before.forward())
    try:
        before.backward(layer.backward(torch.ones_like(out)))
    except RuntimeError as e:
        assert "does not require grad" in str(e), e
        return False
    return True


def has_gradient(needs: bool) -> bool:
    """Whether an adapter inside a recomputed module has a gradient if the module's input `needs` one."""
    adapter = torch.nn.Linear(4, 4)
    trackers = ("_get_all_rng_states", "_set_all_rng_states", "get_cuda_rng_tracker")
    with patch.multiple(random, **{n: MagicMock(return_value=()) for n in trackers}):
        out = random.checkpoint(adapter, False, torch.ones(2, 4, requires_grad=needs))
        if out.requires_grad:
            out.sum().backward()
    return adapter.weight.grad is not None


def after_norm(needs: bool) -> str:
    """How the backward pass of an adapter ends whose input, the output of a recomputed norm, is not kept."""
    norm, adapter = torch.nn.LayerNorm(4).requires_grad_(False), torch.nn.Linear(4, 4)
    doubles = {n: MagicMock(return_value=()) for n in ("_get_all_rng_states", "_set_all_rng_states")}
    doubles |= {"_fork_rng": nullcontext, "_get_share_storage": lambda: restore}
    with patch.multiple(random, **doubles):
        kept = random.CheckpointWithoutOutput(fp8=None)
        out = adapter(kept.checkpoint(norm, torch.randn(2, 4, requires_grad=needs)))
        kept.discard_output_and_register_recompute(out)
        try:
            out.sum().backward()
        except TypeError as e:
            return str(e)
    return "ok" if adapter.weight.grad is not None else "no gradient"


def restore(kept: torch.Tensor, again: torch.Tensor) -> None:
    """Give a tensor its values again, as Megatron's compiled function does."""
    kept.untyped_storage().resize_(again.untyped_storage().nbytes())
    kept.data.copy_(again.detach())


if __name__ == "__main__":
    torch.Tensor.record_stream = lambda *_: None  # type: ignore[method-assign]
    names = {"overlapped": told(True), "plain": told(False)}
    said = {
        "packed": {n: "packed_seq_params" in found for n, found in names.items()},
        "loss_mask": {n: "loss_mask" in found for n, found in names.items()},
        "embedding": {"frozen": ends(True), "trained": ends(False)},
        "recomputed": {"needs a gradient": has_gradient(True), "needs none": has_gradient(False)},
        "norm": {"needs a gradient": after_norm(True), "needs none": after_norm(False)},
    }
    print(json.dumps(said))
