"""The facts of a model, a machine and a cluster that a declaration may state, with their types and units.

rules/declarations.py builds these from declarations; the cost model, the rules and the emitter read them. Facts that
are fields of Bridge's model are listed with their paths.
"""

from __future__ import annotations

from collections.abc import Mapping

from attrs import field, frozen

from moedsl.facts.calibration import Constants

WIDEST = 256
"""The widest attention head that fused attention kernels can train."""


@frozen
class Vision:
    """The vision tower and projector of a VLM (ViT, patch merger, deepstack mergers)."""

    layers: int
    hidden: int
    ffn_hidden: int
    heads: int
    patch: int
    temporal_patch: int
    merge: int
    in_channels: int
    positions: int
    """Learned position embeddings."""
    out_hidden: int
    """Width of the language model that the projector feeds."""
    final_norm: bool = False
    """A norm after the last layer, in addition to the projector's."""
    replicated: bool = False
    """Hugging Face's own modules, whole on each tensor-parallel rank and without recompute (Kimi-K2.5)."""
    pooled: bool = False
    """Layers with four RMS norms, a gated MLP and no biases; embeddings for each of two coordinates; the mean of
    `merge`**2 patches enters one projection (Gemma 4)."""
    deepstack: tuple[int, ...] = ()
    """Layers whose output is also merged into the language model."""
    image_tokens: int = 1024
    """Language-model tokens of one image in the estimate (patches are `merge`**2 times as many)."""


@frozen(cache_hash=True)  # models are the keys of most look-ups about layouts
class Model:
    """A mixture-of-experts transformer; names are Megatron's if it has one."""

    name: str
    hf: str
    """Hugging Face id that AutoBridge resolves."""
    family: str
    """The `model_type` of the Hugging Face configuration."""
    layers: int
    hidden: int
    vocab: int
    heads: int
    query_groups: int
    head_dim: int
    ffn_hidden: int
    """Width of a dense layer's MLP."""
    experts: int
    topk: int
    expert_hidden: int
    revision: str = ""
    """Commit of the Hugging Face repository; empty takes its default branch."""
    routing_groups: int = 1
    """Equal groups of experts; a token's experts come from `topk_groups` of them. 1 is no limit."""
    topk_groups: int = 1
    """The number of groups of a token; all groups is no limit."""
    shared_expert_hidden: int = 0
    """Total width of the shared experts; 0 is none."""
    shared_expert_gate: bool = False
    dense_layers: int = 0
    """Leading layers whose MLP is dense."""
    moe_latent: int = 0
    """Latent width of the tensors sent to the routed experts and back; 0 sends the hidden state."""
    gated: bool = True
    """MLPs and experts have a gate (SwiGLU); false: one product and its squared ReLU."""
    layer_pattern: str = ""
    """A hybrid's layers in Megatron's letters, each one block: M Mamba-2, * attention, E experts, - dense MLP. Empty if
    every layer has attention and an MLP."""
    mamba_heads: int = 0
    mamba_head_dim: int = 0
    mamba_state: int = 0
    """Size of the SSM's state for each dimension of a head."""
    mamba_groups: int = 0
    """Groups of heads that share B and C."""
    linear_every: int = 0
    """One layer in this many has full attention, the others a gated delta net (linear attention); 0 is none."""
    linear_key_heads: int = 0
    """Heads of a delta net's queries and keys."""
    linear_value_heads: int = 0
    linear_key_dim: int = 0
    """Width of a delta net's query and key heads."""
    linear_value_dim: int = 0
    mtp_layers: int = 0
    mtp_pattern: str = ""
    """The blocks of a hybrid's MTP layer."""
    mtp_repeated: bool = False
    """One layer's weights serve every depth of MTP."""
    mtp_dense: bool = False
    """The MTP layer has a dense MLP, although the model's last layer has experts."""
    attention: str = "gqa"
    """gqa or mla."""
    q_lora_rank: int = 0
    kv_lora_rank: int = 0
    qk_nope_dim: int = 0
    qk_rope_dim: int = 0
    v_head_dim: int = 0
    """Width of a head's values, which latent attention states; 0 is `head_dim`."""
    indexer_heads: int = 0
    """Heads of the indexer of sparse attention (DSA), which picks the keys of each query; 0 attends to all keys."""
    indexer_dim: int = 0
    """Width of one of its heads."""
    indexer_topk: int = 0
    """The most keys that a query attends to."""
    indexer_every: int = 1
    """After the leading ones, one layer in this many has an indexer; the others attend to the keys that it chose."""
    indexer_leading: int = 0
    """Leading layers with an indexer each."""
    qk_norm: bool = False
    query_norm: bool = True
    """Whether latent attention without a q_lora_rank norms the input of its query projection if it has QK norm: not
    before Megatron-Core 0.19."""
    qk_norm_over: str = "each_head"
    """each_head: a norm as wide as one head. all_heads: one as wide as all heads, whole on each rank (OLMoE).
    split_heads: such a norm split over TP, which kernels of its own compute in FP32 (MiniMax-M2)."""
    qkv_bias: bool = False
    attention_bias: bool = False
    """Bias of the attention output projection."""
    mlp_bias: bool = False
    """Bias of dense and expert linears (GPT-OSS)."""
    attention_gate: bool = False
    """A gate multiplies attention's output. The projection of queries, keys and values also computes this gate."""
    attention_sinks: bool = False
    """Each head has a learned softmax offset (GPT-OSS)."""
    router_balanced: bool = True
    """Whether a loss or a bias of each expert balances the router. Bridge trains GPT-OSS with neither."""
    router_bias: bool = False
    """Bias of the router's linear. DeepSeek's expert bias is a buffer and not this bias."""
    tied_embeddings: bool = False
    window: int = 0
    """Sliding-window attention, tokens; 0 is full attention."""
    window_every: int = 0
    """One layer in this many has full attention, the others the window; 0: all layers are the same."""
    window_leading: int = 0
    """Leading layers that have full attention too."""
    window_first: bool = False
    """Full attention is in the first layer of each group, and not in the last (Step-3.5)."""
    window_heads: int = 0
    """Query heads of the layers with a window, if they are a kind of layer of their own; 0 is `heads`."""
    window_query_groups: int = 0
    """Query groups of the layers with a window, if they are a kind of layer of their own; 0 is `query_groups`."""
    window_sinks: bool = False
    """Each head of a layer with a window has a learned softmax offset; the others' heads do not (MiMo-V2)."""
    full_query_groups: int = 0
    """Query groups of the layers with full attention, if they are a kind of layer of their own; 0 is `query_groups`."""
    full_head_dim: int = 0
    """Width of their heads; 0 is `head_dim`."""
    sandwich_norms: bool = False
    """Norms also after attention, the shared experts, the routed experts and their sum; the router and the shared
    experts have input norms of their own, the router scales its inputs and its experts, and values are normed
    (Gemma 4)."""
    softcap: bool = False
    """A tanh bounds the logits (Gemma)."""
    max_seq: int = 0
    position_embedding_type: str = "rope"
    """rope, yarn, mrope or none, as in Megatron. Latent attention always rotates its own queries and keys."""
    vision: Vision | None = None

    @property
    def hybrid(self) -> bool:
        """Whether each layer is one block, whose kind is in `layer_pattern`."""
        return bool(self.layer_pattern)

    @property
    def linear(self) -> bool:
        """Whether some layers have a gated delta net in place of attention."""
        return bool(self.linear_every)

    @property
    def sparse(self) -> bool:
        """Whether an indexer picks the keys that a query attends to."""
        return bool(self.indexer_heads)

    @property
    def windowed(self) -> bool:
        """Whether window layers differ from full layers in heads or query groups, and so are a separate kind."""
        return bool(self.window_heads or self.window_query_groups or self.full_query_groups)

    @property
    def wide_heads(self) -> bool:
        """Whether heads are too wide for the fused attention kernels, so that separate kernels write out each score
        (te pytorch/attention/dot_product_attention/utils.py:1032, :1055, :1121)."""
        return self.attention == "gqa" and max(self.head_dim, self.value_dim) > WIDEST

    @property
    def value_dim(self) -> int:
        """The width of a head's values."""
        return self.v_head_dim or self.head_dim

    @property
    def kinds_said(self) -> str:
        """The layers of each kind as text, ``23 Mamba, 6 attention, 23 MoE``; empty if only their MLPs differ."""
        if self.linear:
            full = self.layers // self.linear_every
            return f"{self.layers - full} gated delta net, {full} attention"
        kinds = (("M", "Mamba"), ("*", "attention"), ("E", "MoE"), ("-", "MLP"))
        return ", ".join(f"{n} {word}" for letter, word in kinds if (n := self.layer_pattern.count(letter)))

    @property
    def layers_said(self) -> str:
        """The layers as text: ``52 layers (23 Mamba, 6 attention, 23 MoE)``."""
        return f"{self.layers} layers" + (f" ({self.kinds_said})" if self.kinds_said else "")


_RATES = {
    "bf16": (), "fp8_blockwise": ("fp8", "mxfp8"), "fp8_current": ("fp8", "mxfp8"), "mxfp8": ("mxfp8", "fp8"),
    "nvfp4": ("nvfp4",),
}  # fmt: skip
"""The keys of `Hardware.tflops` that each precision may use; a GPU with both 8-bit peaks reaches the same in each."""


@frozen
class Hardware:
    """One GPU type in its node and its NVLink domain. Bandwidths are for one GPU and one direction."""

    name: str
    arch: str
    """ampere, hopper, blackwell or rubin: whose calibration prices it."""
    device: str
    """The result of torch.cuda.get_device_name."""
    capability: float
    memory: float
    """Bytes by the data sheet."""
    nvlink_domain: int
    gpus_per_node: int
    sms: int
    tflops: Mapping[str, float]
    """Dense TFLOPS by precision: bf16, fp8, mxfp8, nvfp4 (only what the GPU has)."""
    hbm: float
    """Bytes/s."""
    nvlink: float
    """Bytes/s inside the NVLink domain."""
    network: float
    """Bytes/s between NVLink domains."""
    constants: Constants
    """The share of these rates that its generation reaches (`calibration`)."""
    visible: float = 0.0
    """Bytes that the driver shows (nvidia-smi); 0 is `memory`."""
    torch_total: float = 0.0
    """Bytes that the driver leaves to programs (torch's `total_memory`), in which a layout must fit; 0 is unknown, 0.3
    to 1.1 GiB less than `visible`."""
    exponentials: float = 16.0
    """Exponentials of an SM in a clock, which limit attention."""
    host_link: float = 64e9
    """Bytes/s between the GPU and its host's memory; the default is PCIe 5.0's."""
    watts: float = 0.0
    """The power limit, W."""
    rated_watts: float = 0.0
    """The power, W, of the GPU for which the peaks were first stated; 0 is `watts`."""
    host: str = "x86"
    """The processor that launches: x86 or grace."""
    host_speed: float = 1.0
    """How fast the processor launches, relative to the one for which launches are calibrated."""
    node_memory: float = 0.0
    """Bytes of a node's host memory; 0 is unknown."""
    host_memory: float = 0.0
    """Bytes of host memory in a node as NVIDIA sells it, where `node_memory` is unknown: for remarks alone."""
    rack_gpus: int = 0
    """GPUs below the same leaf switches; 0 is unknown."""
    oversubscription: float = 1.0
    """Bytes/s of a rack's ports relative to those of its uplinks: 2 in a tree with 2:1."""
    based_on: str = ""
    """The machine of the library whose facts it takes (`from`), for rules that name machines; empty if none."""
    sources: Mapping[str, str] = field(factory=dict)
    """The source of each fact, by fact name."""

    @property
    def kind(self) -> str:
        """The name by which rules know the machine."""
        return self.based_on or self.name

    @property
    def transposes(self) -> bool:
        """Whether per-tensor FP8 weights need a transposed copy: Blackwell multiplies them in any orientation (te
        pytorch/utils.py:775)."""
        return self.capability < 10

    def rate_of(self, precision: str) -> str:
        """Return the key in `tflops` of the peak that a precision uses; bf16 if the GPU states no peak for it."""
        return next((rate for rate in _RATES[precision] if rate in self.tflops), "bf16")

    @property
    def shown(self) -> float:
        """The bytes that the driver reports."""
        return self.visible or self.memory

    @property
    def total(self) -> float:
        """The bytes that a program sees: `torch_total`, else `shown`."""
        return self.torch_total or self.shown


@frozen
class Site:
    """The facts of a cluster that a plan reads, besides those that change its hardware."""

    storage_write: float = 0.0
    """Bytes/s that the shared file system accepts from all nodes of a job together."""
    gpu_mtbf: float = 0.0
    """Mean seconds that a GPU trains between failures that end the job."""
    most_lost: float = 0.0
    """The most training, in seconds, that one failure may lose."""
    local_disk: str = ""
    """A folder on each node's own disk; empty if there is none."""
    nodes_per_rack: int = 0
    """Nodes under the same leaf switches."""
    rails: int = 0
    """Network adapters of a node, each with a leaf switch of its own."""
    chain: bool = False
    """Whether a long run is a chain of jobs."""


_M = "model."
PLAIN = {
    "layers": "num_layers",
    "hidden": "hidden_size",
    "heads": "num_attention_heads",
    "ffn_hidden": "ffn_hidden_size",
    "topk": "moe_router_topk",
    "max_seq": "seq_length",
    "qk_nope_dim": "qk_head_dim",
    "qk_rope_dim": "qk_pos_emb_head_dim",
    "v_head_dim": "v_head_dim",
}
OR_ZERO = {
    "experts": "num_moe_experts",
    "shared_expert_hidden": "moe_shared_expert_intermediate_size",
    "moe_latent": "moe_latent_size",
    "mtp_layers": "mtp_num_layers",
    "q_lora_rank": "q_lora_rank",
    "kv_lora_rank": "kv_lora_rank",
}
FLAGS = {
    "qk_norm": "qk_layernorm",
    "qkv_bias": "add_qkv_bias",
    "attention_bias": "add_bias_linear",
    "mlp_bias": "add_bias_linear",
    "shared_expert_gate": "moe_shared_expert_gate",
    "tied_embeddings": "share_embeddings_and_output_weights",
    "router_bias": "add_router_bias",
    "gated": "gated_linear_unit",
    "mtp_repeated": "mtp_use_repeated_layer",
    "attention_gate": "attention_output_gate",
}
MIXER = {
    "mamba_heads": "mamba_num_heads",
    "mamba_head_dim": "mamba_head_dim",
    "mamba_state": "mamba_state_dim",
    "mamba_groups": "mamba_num_groups",
}
"""Fields that every provider has; they are meaningful only with a layer pattern."""
DELTA_NET = {
    "linear_key_heads": "linear_num_key_heads",
    "linear_value_heads": "linear_num_value_heads",
    "linear_key_dim": "linear_key_head_dim",
    "linear_value_dim": "linear_value_head_dim",
}
"""Fields that every provider has; they are meaningful only with gated delta nets."""

INDEXER = {
    "indexer_heads": "dsa_indexer_n_heads",
    "indexer_dim": "dsa_indexer_head_dim",
    "indexer_topk": "dsa_indexer_topk",
    "indexer_every": "dsa_indexer_topk_freq",
    "indexer_leading": "dsa_indexer_skip_topk_offset",
}
"""Fields that every provider has; they are meaningful only with sparse attention."""

FIELDS: Mapping[str, str] = {
    word: _M + name for word, name in {**PLAIN, **OR_ZERO, **FLAGS, **MIXER, **DELTA_NET, **INDEXER}.items()
} | {"query_groups": "model.num_query_groups", "expert_hidden": "model.moe_ffn_hidden_size"}
"""Each fact's Bridge field, to find a fact by its Megatron name and to name the field in messages."""

SHARED: Mapping[str, str] = {
    _M + name: word
    for name, word in {
        "kv_channels": "head_dim",
        "multi_latent_attention": "attention",
        "moe_layer_freq": "dense_layers",
        "moe_router_num_groups": "routing_groups",
        "moe_router_group_topk": "topk_groups",
        "hybrid_layer_pattern": "layer_pattern",
        "hybrid_override_pattern": "layer_pattern",
        "mtp_hybrid_override_pattern": "mtp_pattern",
        "linear_attention_freq": "linear_every",
        "experimental_attention_variant": "linear_every",
        "window_size": "window",
        "window_attn_skip_freq": "window_every",
        "softmax_type": "attention_sinks",
        "position_embedding_type": "position_embedding_type",
    }.items()
}
"""Fields that state a fact in another form, with that fact."""
COUNTED = ("model.vocab_size", "model.mtp_num_layers", "model.seq_length")
"""Fields of facts that a run states itself."""


def facts_by_field() -> Mapping[str, str]:
    """Map each field that only a model's declaration decides to the fact that declares it."""
    return {**{field: word for word, field in FIELDS.items() if field not in COUNTED}, **SHARED}
