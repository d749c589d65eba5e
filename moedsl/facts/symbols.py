"""List every name that an expression may use, with its type: axes, values of the run, facts and costs."""

from __future__ import annotations

from attrs import fields, frozen

from moedsl.facts import axes, fine_tuning
from moedsl.facts.facts import Hardware, Model


@frozen
class Type:
    """`kind` is number, flag, enum, set, text or list; `words` are the words of an enum or a set."""

    kind: str
    words: tuple[str, ...] = ()

    def __str__(self) -> str:
        return {"enum": f"one of {', '.join(self.words)}", "set": f"a set of {', '.join(self.words)}"}.get(
            self.kind, f"a {self.kind}"
        )


NUMBER, FLAG, TEXT, LIST = Type("number"), Type("flag"), Type("text"), Type("list")

WORD_ELSEWHERE = {
    "up_proj": (("mla_up_proj",), "the up-projection of multi-latent attention; other attention has none"),
    "norm": (("layernorm",), "the norms before attention and before the experts"),
    "selective": (("[layernorm, moe_act]",), "selective recomputation names its modules"),
    "flex": (("deepep", "hybridep", "ncclep"), "Megatron's flex dispatcher has these backends"),
    **dict.fromkeys(("finetune", "fine_tune", "finetuning", "fine_tuning"), (("sft",), "fine-tuning of all weights")),
    **dict.fromkeys(("pretraining", "pre_train", "train"), (("pretrain",), "training from the start")),
}
"""Other tools' names for values of an axis or a statement: our names and their meaning. NVIDIA's names are in core
transformer/transformer_config.py:518, 1736 and transformer/moe/token_dispatcher.py:1769."""

_ZERO = "data parallelism shards the optimizer, as with ZeRO 1; with `pin sharding=fsdp` it shards all, as with ZeRO 3"
_ADAPTERS = "write `task peft`, and `adapter lora rank=8` for another adapter than Bridge's default"
_QUANTISED = "Bridge trains adapters on weights in BF16 or FP8, not in 4 bits: write `task peft`"
_RECOMPUTED = "the search chooses what is recomputed; for whole layers write `pin recompute=full`"
_SHARDED = "remove it: the optimizer is always sharded; `pin sharding=fsdp` shards weights and gradients too"
_SEQUENCE = "remove it: sequence parallelism follows from `tp`"
_LENGTH = "write how long it trains as `for 2T tokens` or `for 14 days`"
_EPOCHS = "state the tokens of the run: `for 100B tokens`; a folder of samples has epochs: `set train.num_epochs = 3`"
_ACCUMULATED = "state the sequences of a step, as in `batch 256`: how many microbatches accumulate follows"
_SPEED = "limit the tokens of a GPU, as in `require tokens_per_s_per_gpu > 5000`, or a step: `require step_time < 10`"
MEMORY_ELSEWHERE = ("memory", "max_memory", "gpu_memory", "mem", "vram")
"""Other names for the memory that a layout needs, `peak_memory`."""
_ROOM = "limit the memory that a layout needs, as in `require peak_memory < 60 GB`"
_KERNEL = "remove it: Bridge chooses the kernel of attention"
_FACT = "this is a fact of the model, which a run does not change: `moedsl models add config.json` declares another"
_WISH = "say what comes first: `throughput first`, `fit first` or `scale first`"
ABSENT_HERE: dict[str, str] = {
    **dict.fromkeys(
        ("gradient_checkpointing", "activation_checkpointing", "checkpoint_activations", "recompute_activations"),
        _RECOMPUTED,
    ),
    **dict.fromkeys(("distributed_optimizer", "use_distributed_optimizer", "distributed"), _SHARDED),
    **dict.fromkeys(("sequence_parallel", "sequence_parallelism", "sp"), _SEQUENCE),
    **dict.fromkeys(("tokens", "train_tokens", "total_tokens", "num_tokens", "days", "hours"), _LENGTH),
    **dict.fromkeys(("epoch", "epochs", "num_epochs", "num_train_epochs"), _EPOCHS),
    **dict.fromkeys(
        ("gradient_accumulation", "gradient_accumulation_steps", "grad_accum", "accumulate_grad_batches"), _ACCUMULATED
    ),
    **dict.fromkeys(("tokens_per_second", "tokens_per_sec", "tokens_per_s", "throughput", "mfu", "tflops"), _SPEED),
    **dict.fromkeys(("nodes", "num_nodes", "nnodes"), "write `gpus / gpus_per_node`, or `gpus`"),
    **dict.fromkeys(MEMORY_ELSEWHERE, _ROOM),
    **dict.fromkeys(("flash_attention", "flash_attn", "use_flash_attn", "flash", "sdpa"), _KERNEL),
    **dict.fromkeys(
        (
            "num_experts",
            "num_layers",
            "hidden_size",
            "num_attention_heads",
            "experts",
            "layers",
            "topk",
            "top_k",
            "moe_router_topk",
            "ffn_hidden_size",
            "num_moe_experts",
            "vocab_size",
        ),
        _FACT,
    ),
    **dict.fromkeys(("maximize", "maximise", "minimize", "minimise", "optimize", "optimise", "objective"), _WISH),
    **dict.fromkeys(("zero", "zero1", "zero2", "zero3", "zero_stage", "zero_optimization"), _ZERO),
    **dict.fromkeys(("lora", "dora", "canonical_lora", "peft"), _ADAPTERS),
    "qlora": _QUANTISED,
}
"""Other tools' names that have no statement in the language, each with what to write instead."""

ALIASES = {"overlap.ep": "ep_overlap", "overlap.wgrad": "delay_wgrad"}

VLM_WORDS = ("freeze_vision", "freeze_projection", "freeze_language")
PRECISIONS = ("bf16", "fp8", "mxfp8", "nvfp4", "auto", "fp8_blockwise", "fp8_current")
TASKS = ("pretrain", "sft", "peft")
FINE_TUNES = ("sft", "peft")
"""The tasks that start from the weights of a checkpoint."""
ADAPTERS = ("none", *fine_tuning.METHODS)
ROUTINGS = ("natural", "balanced")
DATA = ("mock", "real")
RISKS = ("none", "oom")
ARCHS = ("ampere", "hopper", "blackwell", "rubin")
ATTENTION = ("gqa", "mla")
POSITIONS = ("rope", "yarn", "mrope", "none")
QK_NORMS = ("each_head", "all_heads", "split_heads")
SHAPES = ("static", "unpadded", "packed", "variable")
CASES = ("high", "best", "low")
"""The cases of the memory estimate that a layout must fit in, safest first: a search tries the next case only if no
layout fits. A run with `risk oom` starts at the second."""

SWITCHES = {
    "drop_and_pad": ("model.moe_pad_expert_input_to_capacity", False),
    "pads_tokens": ("model.moe_hybridep_pad_uneven_dispatch_inputs", False),
    "fp8_weights": ("mixed_precision.fp8_param_gather", True),
    "fp4_weights": ("mixed_precision.fp4_param_gather", True),
}
"""Flags that are Bridge fields, with the value in a run that does not set them; weights in BF16 ignore the last two."""
LENGTHS = ("run_tokens", "run_seconds")
"""How long the run trains, as `for` states it; 0 if not stated."""
RUN: dict[str, Type] = {
    "gpus": NUMBER,
    "seq": NUMBER,
    "global_batch": NUMBER,
    "phase": Type("enum", axes.PHASES),
    "task": Type("enum", TASKS),
    "routing": Type("enum", ROUTINGS),
    "data": Type("enum", DATA),
    "must_fit": Type("enum", CASES),
    "vlm": Type("set", VLM_WORDS),
    "adapter": Type("enum", ADAPTERS),
    "adapter_rank": NUMBER,
    "adapter_targets": Type("set", fine_tuning.TARGETS),
    "adapter_experts": Type("enum", fine_tuning.EXPERTS),
    "adapter_normalized": FLAG,
    "adapter_regather": FLAG,
    "pack": FLAG,
    "shapes": Type("enum", SHAPES),
    "saves": FLAG,
    "imports_weights": FLAG,
    "trained_params": NUMBER,
    "bridge_version": NUMBER,
    "torch_version": NUMBER,
    "te_version": NUMBER,
    **dict.fromkeys(LENGTHS, NUMBER),
    **dict.fromkeys(SWITCHES, FLAG),
}
"""Values that the run fixes before the solver starts."""

_WORDS = {"attention": ATTENTION, "position_embedding_type": POSITIONS, "qk_norm_over": QK_NORMS, "arch": ARCHS}
_KINDS = {"int": NUMBER, "float": NUMBER, "bool": FLAG, "str": TEXT}


def _facts(cls: type, skip: tuple[str, ...]) -> dict[str, Type]:
    out: dict[str, Type] = {}
    for f in fields(cls):
        if f.name not in skip and str(f.type) in _KINDS:
            out[f.name] = Type("enum", _WORDS[f.name]) if f.name in _WORDS else _KINDS[str(f.type)]
    return out


VISION = {"vision_heads": NUMBER, "vision_ffn_hidden": NUMBER, "deepstack_layers": NUMBER}
"""Facts of the vision tower; 0 if there is none."""
MODEL = (
    _facts(Model, ("name", "hf", "revision", "query_norm"))
    | {"model": TEXT, "has_vision": FLAG, "hybrid": FLAG}
    | VISION
)
HARDWARE = _facts(Hardware, ("name", "device", "based_on")) | {"hardware": TEXT}

_AXIS_KINDS = {"int": NUMBER, "flag": FLAG}
AXES: dict[str, Type] = {a.name: _AXIS_KINDS.get(a.kind) or Type(a.kind, a.words) for a in axes.AXES}

SPARES = {"spare_memory": "high", "spare_at_best": "best", "spare_at_low": "low"}
"""The costs that are memory left free, each with its case of the memory estimate."""
MEMORY = ("peak_memory", *SPARES)
"""The costs in bytes."""
COSTS: dict[str, Type] = dict.fromkeys((*MEMORY, "step_time", "score"), NUMBER)
"""Costs of a layout: peak bytes, bytes left free in each case, seconds per step, and these seconds plus the worth of
all advice that is not followed (`score`)."""

SAVES: dict[str, Type] = {"goodput": NUMBER, "save_steps": NUMBER, "local_save_steps": NUMBER, "local_disk": TEXT}
"""Values of the chosen layout, only for `derive`: the share of a month spent training, the best number of steps between
checkpoints and between saves to the nodes' own disks (0 if those do not pay), and the folder of the local saves."""

BYTES = (*MEMORY, "memory", "visible", "torch_total", "node_memory", "host_memory")
"""Names of amounts of memory."""
RATES = ("hbm", "nvlink", "network", "host_link")
"""Names of rates in bytes/s."""
TIMES = ("step_time", "run_seconds")
"""Names of times in seconds."""

BUILTIN: dict[str, Type] = RUN | MODEL | HARDWARE | AXES | COSTS | SAVES
