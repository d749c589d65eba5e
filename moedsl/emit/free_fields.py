"""Name the decided fields that a run may `set` otherwise: no estimate reads them.

A field is not free where NVIDIA's code refuses the other value.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from moedsl.emit.dataset import is_mock
from moedsl.planner.model.plan import Plan

_FREE: Mapping[str, Callable[[Plan], bool]] = {
    # a captured iteration cannot check (bridge training/config.py:1369)
    "rerun_state_machine.check_for_nan_in_loss": lambda p: "full_iteration" not in p.policy.cuda_graph,
    "ddp.check_for_nan_in_grad": lambda p: "full_iteration" not in p.policy.cuda_graph,
    # graphs need it; without them it changes nothing
    "model.use_te_rng_tracker": lambda p: not p.policy.cuda_graph,
    "rng.te_rng_tracker": lambda p: not p.policy.cuda_graph,
    "model.moe_flex_dispatcher_num_sms": lambda _: True,
    "model.moe_hybridep_num_sms_preprocessing": lambda _: True,
    "model.moe_paged_stash_buffer_size_factor_cpu": lambda _: True,
    "model.moe_shared_expert_overlap": lambda p: not p.policy.ep_overlap and "shared_experts" not in p.policy.recompute,
    "mixed_precision.first_last_layers_bf16": lambda _: True,
    # under context parallelism masked tokens need the loss per token (bridge training/config.py:1450)
    "model.calculate_per_token_loss": lambda p: p.layout.cp == 1,
    "ddp.average_in_collective": lambda p: p.layout.cp == 1,
    # mock data needs no tokenizer
    "tokenizer.tokenizer_type": is_mock,
    "tokenizer.tokenizer_model": is_mock,
}


def is_free(path: str, plan: Plan) -> bool:
    """Whether a run with this plan may `set` a field that the plan decides."""
    return path in _FREE and _FREE[path](plan)
