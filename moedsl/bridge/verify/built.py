"""Ask the built model for its schedule with expert overlap and for its graphs.

The functions that training calls run on the real model on the meta device.
"""

from __future__ import annotations

import importlib
import inspect
import os
from collections.abc import Callable, Sequence
from typing import Any
from unittest.mock import patch

from moedsl.bridge.verify.report import Refusal, is_theirs, refusal

UNTURNED = (
    "captured attention gets no rotary_pos_emb ({positions}): its graph is made without positions, and a replay drops "
    "them (megatron/core/transformer/cuda_graphs.py:2306, transformer_engine/pytorch/graph.py:1190)"
)


def ask(config: Any, chunks: Sequence[Any], groups: Any) -> tuple[list[Refusal], list[str]]:
    """List refusals of the chunks of one rank, and silent errors. Call inside `meta_device`."""
    refused: list[Refusal] = []
    cautions: list[str] = []
    if config.model.overlap_moe_expert_parallel_comm:
        _try(refused, "overlap", lambda: [_schedule(config, chunk) for chunk in chunks])
    if config.model.cuda_graph_impl == "transformer_engine":
        _try(refused, "graphs", lambda: cautions.extend(_captured(config, chunks, groups)))
    return refused, cautions


def _try(out: list[Refusal], question: str, asked: Callable[[], object]) -> None:
    try:
        asked()
    except Exception as error:
        if not is_theirs(error):
            raise
        out.append(refusal(error, question))


def _schedule(config: Any, chunk: Any) -> None:
    """Plan the layers as core/pipeline_parallel/combined_1f1b.py:381-386 does."""
    import torch

    wrapped: Any = importlib.import_module("megatron.core.utils").get_attr_wrapped_model
    model = wrapped(chunk, "build_schedule_plan", return_model_obj=True)
    tokens = torch.zeros((config.train.micro_batch_size, config.model.seq_length), dtype=torch.long)
    model.build_schedule_plan(tokens, tokens, None, labels=tokens, loss_mask=tokens)


def _captured(config: Any, chunks: Sequence[Any], groups: Any) -> list[str]:
    """Find the layers and the inputs of their graphs in the order of the schedule, as TECudaGraphHelper of
    core/transformer/cuda_graphs.py does. Needs the microbatch calculator."""
    graphs: Any = importlib.import_module("megatron.core.transformer.cuda_graphs")
    variables = {name: str(value) for name, value in (getattr(config, "env_vars", None) or {}).items()}
    takes = inspect.signature(graphs.TECudaGraphHelper).parameters
    own = {"pg_collection": groups} if "pg_collection" in takes else {}  # not before Megatron-Core 0.18
    with patch.dict(os.environ, variables):
        helper = graphs.TECudaGraphHelper(
            chunks, config.model, config.model.seq_length, config.train.micro_batch_size, **own
        )
    if not helper.flattened_callables:
        return []
    _, made = helper._get_cuda_graph_input_data()
    if not _captures_attention(config.model):
        return []
    turned = all("rotary_pos_emb" in given for given in made.get("sample_kwargs") or () if given is not None)
    positions = {c.position_embedding_type for c in helper.chunks_with_decoder if c is not None}
    return [] if turned or "none" in positions else [UNTURNED.format(positions=", ".join(sorted(positions)))]


def _captures_attention(model: Any) -> bool:
    """Whether the model rotates positions in shared code; latent attention does this itself."""
    modules = model.cuda_graph_modules if hasattr(model, "cuda_graph_modules") else model.cuda_graph_scope
    return not model.multi_latent_attention and (not modules or "attn" in {m.name for m in modules})
