"""List what a plan decides of the resolved ConfigContainer, field by field; independent of emit/, which it judges."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from moedsl.facts.families import PREPROCESSING
from moedsl.facts.fields import has, path_of
from moedsl.planner.model.plan import Batch, Layout, Plan, Policy

Check = tuple[str, Any, Callable[[Any], bool]]
"""A dotted field, the plan's value, and a test of the resolved value."""


PATTERN = "model.hybrid_layer_pattern"
_OBJECTS = {
    PREPROCESSING: {"chat": "<ChatSFTPreprocessingConfig>", "prompts": "<PromptCompletionSFTPreprocessingConfig>"}
}
"""The resolved values of fields that a run file sets by a word, as `flat` writes objects."""


def checks(plan: Plan) -> Iterator[Check]:
    """Check every decided value of `plan` (docs/internals.md, Plan JSON) against the config after Bridge's update.

    The user's `set` overrides other decisions.
    """
    own = plan.set
    for check in _decided(plan):
        if check[0] not in own:
            yield check
    for field, value in own.items():
        if field == PATTERN and isinstance(value, str):
            yield _pattern(value)
        elif field == PREPROCESSING and not has(field, plan.target.bridge):
            yield _chats(value)
        elif not field.startswith("env_vars."):
            yield _same(field, _OBJECTS[field][value] if field in _OBJECTS else value)


def _decided(plan: Plan) -> Iterator[Check]:
    yield from _layout(plan.layout)
    yield from _batch(plan.batch)
    yield from _policy(plan.policy, plan.target.bridge)
    for word, value in plan.derived.items():
        path = path_of(word)
        if value or has(path, plan.target.bridge):  # what is off needs no field
            yield _same(path, value)


def _same(field: str, value: Any) -> Check:
    plain = value.removeprefix("torch.") if isinstance(value, str) else value
    return field, plain, lambda actual: actual == plain


def _chats(value: str) -> Check:
    """Whether the data are chats, where that is a keyword of the dataset."""
    return "dataset.dataset_kwargs", value, lambda actual: bool(actual.get("chat")) == (value == "chat")


def _pattern(value: str) -> Check:
    """Split a hybrid's decoder into its segments; MTP's blocks follow a slash, if they are written at all."""
    main = value.partition("/")[0]
    return PATTERN, value, lambda actual: isinstance(actual, str) and actual.partition("/")[0] == main


def _set(field: str, value: Sequence[str]) -> Check:
    return field, value, lambda actual: isinstance(actual, list) and set(actual) == set(value)


_SIZES = {
    "tp": "tensor_model_parallel_size",
    "cp": "context_parallel_size",
    "pp": "pipeline_model_parallel_size",
    "ep": "expert_model_parallel_size",
    "etp": "expert_tensor_parallel_size",
}


def _layout(layout: Layout) -> Iterator[Check]:
    for word, field in _SIZES.items():
        yield _same(f"model.{field}", getattr(layout, word))
    yield _same("data_parallel_size", layout.dp)
    vpp = layout.vpp
    yield "model.virtual_pipeline_model_parallel_size", vpp, lambda actual: (actual or 1) == vpp
    yield _same("model.sequence_parallel", layout.sequence_parallel)
    yield from _stages(layout.pipeline_layout)


def _stages(text: str | None) -> Iterator[Check]:
    """Whether a pipeline layout is of transformer layers, which end with the loss L; a hybrid's has no such letter."""
    if text and "L" in text:
        yield _same("model.pipeline_model_parallel_layout", text)
    elif text:
        yield _same("model.pipeline_model_parallel_layout", None)
        yield _pattern(text)


def _batch(batch: Batch) -> Iterator[Check]:
    yield _same("train.global_batch_size", batch.global_batch)
    yield _same("train.micro_batch_size", batch.micro_batch)
    yield _same("num_microbatches", batch.num_microbatches)
    yield _same("model.seq_length", batch.seq)
    yield _same("dataset.seq_length", batch.seq)


_NUMBERS: dict[str, dict[str, Any]] = {
    "bf16": {"model.fp8": None, "model.fp4": None},
    "fp8_current": {"model.fp8": "hybrid", "model.fp8_recipe": "tensorwise", "model.fp4": None},
    "fp8_blockwise": {"model.fp8_recipe": "blockwise", "model.fp4": None},
    "mxfp8": {"model.fp8_recipe": "mxfp8", "model.fp4": None},
    "nvfp4": {"model.fp4_recipe": "nvfp4"},
}
_DTYPES = {"fp32": "float32", "bf16": "bfloat16"}
_FLAGS = {
    "ep_overlap": "overlap_moe_expert_parallel_comm",
    "delay_wgrad": "delay_wgrad_compute",
    "freeze_vision": "freeze_vision_model",
    "freeze_projection": "freeze_vision_projection",
    "freeze_language": "freeze_language_model",
}


def _policy(policy: Policy, bridge: str) -> Iterator[Check]:
    yield _same("model.bf16", True)
    for field, value in _NUMBERS[policy.precision].items():
        yield _same(field, value)
    yield from _dispatcher(policy.dispatcher)
    yield from _recompute(policy.recompute)
    yield from _graphs(policy.cuda_graph, bridge)
    yield from _optimizer(policy)
    yield _same("model.moe_router_force_load_balancing", policy.routing == "balanced")
    for word, field in _FLAGS.items():
        if getattr(policy, word):
            yield _same(f"model.{field}", True)


def _optimizer(policy: Policy) -> Iterator[Check]:
    yield _same("ddp.grad_reduce_in_fp32", policy.grad_reduce == "fp32")
    yield _same("optimizer.exp_avg_dtype", _DTYPES[policy.moments])
    yield _same("ddp.use_distributed_optimizer", True)
    yield _same("ddp.use_megatron_fsdp", policy.sharding == "fsdp")
    yield _same("optimizer.optimizer_cpu_offload", policy.offload == "optimizer")
    if policy.offload_modules:
        yield _same("model.fine_grained_activation_offloading", True)
        yield _set("model.offload_modules", policy.offload_modules)


def _dispatcher(word: str) -> Iterator[Check]:
    if word == "alltoall":
        yield _same("model.moe_token_dispatcher_type", word)
    else:
        yield _same("model.moe_token_dispatcher_type", "flex")
        yield _same("model.moe_flex_dispatcher_backend", word)


def _recompute(modules: Sequence[str]) -> Iterator[Check]:
    if [*modules] in ([], ["full"]):
        yield _same("model.recompute_granularity", "full" if modules else None)
        return
    yield _same("model.recompute_granularity", "selective")
    yield _set("model.recompute_modules", modules)


def _graphs(modules: Sequence[str], bridge: str) -> Iterator[Check]:
    if not modules:
        yield _same("model.cuda_graph_impl", "none")
    elif [*modules] == ["full_iteration"]:
        yield "model.cuda_graph_impl", "full_iteration", lambda actual: actual in ("full_iteration", "local")
    else:
        newer = "model.cuda_graph_modules"
        yield _set(newer if has(newer, bridge) else "model.cuda_graph_scope", modules)
