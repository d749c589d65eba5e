"""Describe the adapters that `task peft` trains on frozen weights."""

from __future__ import annotations

from attrs import frozen

METHODS = ("lora", "dora", "canonical_lora")
EXPERTS = ("shared", "each", "outer", "none")
"""One adapter for all experts of a layer; one for each; one for each whose side at the hidden state all share; or none:
only the other targets have adapters."""
TARGETS = (
    "linear_qkv", "linear_proj", "linear_fc1", "linear_fc2", "in_proj", "out_proj", "linear_q_proj",
    "linear_q_down_proj", "linear_q_up_proj", "linear_kv_down_proj", "linear_kv_up_proj", "fc1_latent_proj",
    "fc2_latent_proj", "eh_proj", "router", "linear_q", "linear_k", "linear_v", "linear_fc1_up", "linear_fc1_gate",
)  # fmt: skip
"""Megatron's names of the modules that an adapter may be on; the last five are those of canonical LoRA."""
PARTS = {"linear_qkv": ("linear_q", "linear_k", "linear_v"), "linear_fc1": ("linear_fc1_gate", "linear_fc1_up")}
"""The names of canonical LoRA for the parts of a fused module (bridge peft/canonical_lora.py:208)."""
OF_MLP = ("linear_fc1", *PARTS["linear_fc1"], "linear_fc2")
"""The targets that routed experts have too."""


@frozen
class Adapter:
    """One adapter for each target module of each layer."""

    method: str
    rank: int
    alpha: int
    dropout: float
    targets: frozenset[str]
    experts: str
    normalized: bool = False
    """Whether experts have the rank over the experts of a token."""
    regather: bool = False
    """Whether an input that TP gathers is gathered again in backward, and not kept."""
