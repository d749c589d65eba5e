"""Model FLOPs: against the function whose result Megatron Bridge's log prints, and published throughput."""

import ast
import json
from importlib.util import find_spec
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Self

import numpy as np
import pytest
from attrs import evolve

from moedsl.compiler import load_stdlib
from moedsl.cost import Cost, compute, parameters, pipeline
from moedsl.cost.flops import of_step, of_token
from moedsl.facts.axes import BY_NAME, CUDA_GRAPH
from moedsl.facts.facts import Model
from moedsl.facts.fine_tuning import Adapter
from moedsl.runs.measured_runs import Measured, read
from moedsl.solver.problem import lower
from moedsl.solver.solve import make_cost
from moedsl.support.resources import stdlib_dir
from tests.helpers import bridge_process
from tests.helpers.cost_models import hardware, model
from tests.helpers.paths import DATA
from tests.helpers.programs import compiled
from tests.helpers.tables import table_of

NANO, SUPER, ULTRA = (model(f"nemotron_3_{size}") for size in ("nano", "super", "ultra"))
LIGHTNING = model("nemotron_3_5_lightning")
NEXT = model("qwen3_next_80b_a3b")
CASES = (
    *((model(key), 4096, 1) for key in sorted(load_stdlib().models)),
    *((m, seq, tp) for m in (NANO, SUPER, ULTRA) for seq, tp in ((8192, 1), (4096, 4), (131072, 2))),
    (evolve(SUPER, mtp_layers=2), 8192, 1),  # what NVIDIA's recipes train
    (evolve(SUPER, mtp_layers=0, mtp_pattern="", mtp_repeated=False), 8192, 1),
    (evolve(SUPER, layer_pattern="M-*E" * 22, gated=True), 8192, 1),
    *((NEXT, seq, tp) for seq, tp in ((4096, 1), (32768, 2), (131072, 4))),
    (evolve(NEXT, mtp_layers=0, attention_gate=False, layers=46, linear_every=3, linear_key_dim=64), 8192, 1),
    (evolve(NEXT, layers=47, mtp_layers=2), 8192, 1),  # a gated delta net in the last layer, and so in MTP's
    (evolve(NANO, vocab=131_000, mamba_groups=2, mamba_state=64), 8192, 8),
)
"""Model, tokens and TP."""
ASK = """
import json, sys
from types import SimpleNamespace as Config
from moedsl.bridge.verify import stand_ins
stand_ins.install_engine()
from megatron.bridge.training.utils.flop_utils import num_floating_point_operations
said = [num_floating_point_operations(Config(model=Config(**m)), 16) for m in json.load(sys.stdin)]
print(json.dumps(said))
"""


def provider(m: Model, seq: int, tp: int) -> dict[str, Any]:
    """The fields of a provider that the function reads, as Bridge has them of this model."""
    fields: dict[str, Any] = {
        "seq_length": seq, "tensor_model_parallel_size": tp, "hidden_size": m.hidden, "num_layers": m.layers,
        "num_attention_heads": m.heads, "num_query_groups": m.query_groups, "kv_channels": m.head_dim,
        "ffn_hidden_size": m.ffn_hidden, "gated_linear_unit": m.gated, "num_moe_experts": m.experts,
        "moe_router_topk": m.topk, "moe_ffn_hidden_size": m.expert_hidden, "moe_latent_size": m.moe_latent or None,
        "moe_shared_expert_intermediate_size": m.shared_expert_hidden or None, "vocab_size": m.vocab,
        "moe_layer_freq": [0] * m.dense_layers + [1] * (m.layers - m.dense_layers),
        "mtp_num_layers": m.mtp_layers or None, "multi_latent_attention": m.attention == "mla",
        "make_vocab_size_divisible_by": 1280 if m.attention == "mla" else 128,
        "window_size": [m.window - 1, 0] if m.window else None, "window_attn_skip_freq": [int(i % m.window_every > 0) for i in range(1, m.layers + 1)] if m.window_every else None,
    }  # fmt: skip
    fields |= {"window_size": m.window, "window_attn_skip_freq": None} if m.windowed else {}
    fields |= {"window_size": None, "attention_output_gate": m.attention_gate} if m.window_heads else {}
    fields |= _linear(m) if m.linear else {}
    return fields | (_latent(m) if m.attention == "mla" else {}) | (_hybrid(m) if m.hybrid else {})


def _linear(m: Model) -> dict[str, Any]:
    return {
        "experimental_attention_variant": "gated_delta_net", "linear_attention_freq": m.linear_every,
        "attention_output_gate": m.attention_gate, "linear_key_head_dim": m.linear_key_dim,
        "linear_value_head_dim": m.linear_value_dim, "linear_num_key_heads": m.linear_key_heads,
        "linear_num_value_heads": m.linear_value_heads, "linear_conv_kernel_dim": 4,
    }  # fmt: skip


def _latent(m: Model) -> dict[str, Any]:
    return {
        "q_lora_rank": m.q_lora_rank or None, "kv_lora_rank": m.kv_lora_rank, "qk_head_dim": m.qk_nope_dim,
        "qk_pos_emb_head_dim": m.qk_rope_dim, "v_head_dim": m.v_head_dim,
    }  # fmt: skip


def _hybrid(m: Model) -> dict[str, Any]:
    """The whole pattern has MTP's, once for each depth (bridge models/hybrid/hybrid_provider.py:207)."""
    return {
        "hybrid_layer_pattern": "/".join([m.layer_pattern, *[m.mtp_pattern] * m.mtp_layers]),
        "mamba_state_dim": m.mamba_state, "mamba_head_dim": m.mamba_head_dim, "mamba_num_groups": m.mamba_groups,
        "mamba_num_heads": m.mamba_heads, "mtp_num_layers": m.mtp_layers,
    }  # fmt: skip


@pytest.mark.bridge
def test_bridge_counts_the_same():
    """In a process of its own."""
    asked = [provider(*case) for case in CASES]
    ran = bridge_process.run("-c", ASK, text=json.dumps(asked))
    assert ran.returncode == 0, ran.stderr
    said = json.loads(ran.stdout.splitlines()[-1])
    assert len(said) == len(CASES)
    for (m, seq, tp), theirs in zip(CASES, said, strict=True):
        assert of_step(m, seq, 16, tp) == pytest.approx(theirs, rel=1e-12), (m.name, seq, tp)


# Tokens/s/GPU and TFLOPS/GPU of published runs at 8K; NVIDIA's recipes for Super and Lightning train two depths of MTP.
PUBLISHED = (
    (NANO, 0, 39749, 885), (NANO, 0, 33522, 747), (NANO, 0, 14719, 328), (NANO, 0, 42094.107, 937.77),
    (SUPER, 2, 9652, 817), (SUPER, 2, 6742, 571), (SUPER, 2, 9243, 783), (SUPER, 2, 10307.741, 873.33),
    (LIGHTNING, 2, 28672, 807), (LIGHTNING, 2, 7110.095, 200.18), (LIGHTNING, 2, 24404.07, 686.92),
)  # fmt: skip


@pytest.mark.parametrize("m, depths, tokens, tflops", PUBLISHED)
def test_published_throughput_agrees(m: Model, depths: int, tokens: float, tflops: float):
    said = of_token(evolve(m, mtp_layers=depths), 8192) * tokens / 1e12
    assert said == pytest.approx(tflops, rel=0.002)


# Parameters of every pipeline stage against the real Megatron model on the meta device
# (tests/data/make_param_truth.py).

TRUTH = json.loads((DATA / "param_truth.json").read_text())


def name(case: dict) -> str:
    mesh = "-".join(f"{k}{case[k]}" for k in ("tp", "cp", "pp", "vpp", "ep", "etp"))
    mtp = f"-mtp{case['mtp']}" if "mtp" in case else ""
    return f"{case['model']}-{mesh}-{case.get('layout', 'even')}{mtp}"


@pytest.mark.parametrize("case", [c for c in TRUTH if "stages" in c], ids=name)
def test_stages_equal_megatrons(case):
    m = model(case["model"])
    m = evolve(m, mtp_layers=case.get("mtp", m.mtp_layers) or 0)
    if case.get("pad"):
        divisor = 1280 if m.attention == "mla" else 128
        m = evolve(m, vocab=parameters.padded_vocab(m.vocab, divisor, case["tp"]))
    if "layout" in case:
        layout, wrong = pipeline.parse_layout(case["layout"], m, case["pp"], case["vpp"])
        assert not wrong
    else:
        layout = pipeline.layout_for(m, case["pp"], case["vpp"])
        assert layout.text is None
    said = [parameters.stage(m, layout, s, case["tp"], case["ep"], case["etp"]) for s in range(case["pp"])]
    assert [[p.dense, p.expert] for p in said] == case["stages"]


PUBLISHED_PARAMETERS = table_of("cost", "flops: published parameters")


@pytest.mark.parametrize("key", PUBLISHED_PARAMETERS)
def test_unique_parameters_are_the_published_ones(key):
    assert parameters.unique(model(key)) == PUBLISHED_PARAMETERS[key]


def test_what_megatron_refused_is_known():
    refused = {c["model"]: c["refused"] for c in TRUTH if "refused" in c}
    assert set(refused) == {"gpt_oss_120b", "qwen3_vl_30b_a3b", "qwen3_vl_235b_a22b", "qwen3_next_80b_a3b"}
    assert "ETP==1" in refused["gpt_oss_120b"]
    assert "vp_stage" in refused["qwen3_vl_30b_a3b"]
    assert "get_gpt_decoder_layer_specs" in refused["qwen3_next_80b_a3b"]  # MTP, and a chunk without a decoder layer


# The launches of adapters: each has its own, and collectives over TP and, where experts share it, over EP.

H100 = hardware("h100")
K = H100.constants
LAYERS, MICROBATCHES = 48, 64
ROW = {"ep": 8, "tp": 1, "micro_batch": 1, "dispatcher": BY_NAME["dispatcher"].encode("alltoall")}
FC1 = frozenset({"linear_fc1"})


def launched(adapter: Adapter | None, **row: int) -> float:
    """Seconds of launches in a layer and microbatch beyond those of no adapter."""
    asked: dict[str, Any] = {**ROW, **row}
    cost = Cost(model("qwen3_30b_a3b"), H100, 8, 256, 8 * MICROBATCHES // asked["tp"], adapter=adapter)
    report = cost.time_report(asked)
    return sum(report.values()) / LAYERS / MICROBATCHES


def lora(*targets: str, experts: str = "shared") -> Adapter:
    return Adapter("lora", 8, 16, 0.0, frozenset(targets), experts)


def more(a: Adapter, b: Adapter, **row: int) -> float:
    return launched(a, **row) - launched(b, **row)


def test_an_adapter_has_launches_of_its_own() -> None:
    one, two = lora("linear_qkv"), lora("linear_qkv", "linear_proj")
    assert more(two, one) == pytest.approx(K.host_adapter, rel=0.01)
    assert more(two, one, cuda_graph=1 << CUDA_GRAPH.index("full_iteration")) < 0.1 * K.host_adapter


@pytest.mark.parametrize(("target", "collectives"), [("linear_qkv", 2), ("linear_proj", 4)])
def test_tensor_parallelism_adds_collectives(target: str, collectives: int) -> None:
    base = lora("linear_qkv", "linear_proj")
    other = "linear_proj" if target == "linear_qkv" else "linear_qkv"
    assert more(base, lora(other), tp=2) == pytest.approx(K.host_adapter + collectives * K.host_collective, rel=0.02)


@pytest.mark.parametrize(("experts", "collectives"), [("shared", 2), ("outer", 1), ("each", 0)])
def test_expert_parallelism_sums_the_gradients_that_experts_share(experts: str, collectives: int) -> None:
    some, none = lora("linear_qkv", "linear_fc1", experts=experts), lora("linear_qkv")
    assert more(some, none) == pytest.approx(K.host_adapter + collectives * K.host_collective, rel=0.02)


@pytest.fixture(scope="module")
def measured() -> dict[str, Measured]:
    _, runs, found = read(stdlib_dir() / "calibration" / "adapters.jsonl")
    assert not found
    return {r.id: r for r in runs}


def slower(r: Measured) -> float:
    return r.predicted() / (r.tokens or 0)


def test_the_row_that_taught_the_collectives_is_explained(measured: dict[str, Measured]) -> None:
    assert slower(measured["m0333"]) == pytest.approx(1, abs=0.02)


def test_rows_left_out_are_not_overshot(measured: dict[str, Measured]) -> None:
    """Before collectives were counted, the worst was 4.1."""
    left = [slower(r) for name, r in measured.items() if name != "m0333"]
    assert min(left) > 1 and max(left) < 1.9


def test_the_gpu_does_not_decide_where_the_host_launches(measured: dict[str, Measured]) -> None:
    """Nemotron 3.5 Lightning takes as long on GB200 as on H100."""
    h100, gb200 = slower(measured["m0321"]), slower(measured["m0322"])
    assert gb200 == pytest.approx(h100, rel=0.1)


# The bytes of the fused rotary embedding of latent attention are those that Megatron-Core's own kernels move: they
# run here on pointers that note each number that is read or written.

HEADS_AT_ONCE = 32
TABLES = {"COS", "SIN"}
TENSORS = {*["Q", "DO", "KV", "K_POS_EMB", "O_KEY", "O_VALUE", "dK", "dV", "dKV", "dEMB"], *TABLES}
UP_PROJECTION = 1 << BY_NAME["recompute"].words.index("mla_up_proj")


class Block(np.ndarray):
    """What a kernel holds: an array with Triton's names for shapes and types."""

    def expand_dims(self, axis: int) -> np.ndarray:
        return np.expand_dims(self, axis)

    def broadcast_to(self, *shape: int) -> np.ndarray:
        return np.broadcast_to(self, shape, subok=True)

    def to(self, _: object) -> Self:
        return self


class Pointer:
    """A tensor, or numbers of it, by name and offset."""

    dtype = SimpleNamespace(element_ty=None)

    def __init__(self, name: str, at: Any = 0) -> None:
        self.name, self.at = name, at

    def __add__(self, more: Any) -> "Pointer":
        return Pointer(self.name, self.at + more)


class Noting:
    """Triton's language as far as these kernels use it: loads give zeros, and each number moved is noted once."""

    constexpr = float32 = None
    static_range = range
    arange = staticmethod(np.arange)
    sum = staticmethod(np.sum)

    def __init__(self) -> None:
        self.head = 0
        self.moved = set[tuple[str, str, int]]()

    def program_id(self, axis: int) -> int:
        return self.head * (axis == 1)

    def zeros(self, shape: tuple[int, ...], dtype: object) -> Block:
        return np.zeros(shape).view(Block)

    def load(self, pointer: Pointer, mask: Any = True) -> Block:
        self._note("read", pointer, mask)
        return self.zeros(np.shape(pointer.at), None)

    def store(self, pointer: Pointer, value: Any, mask: Any = True) -> None:
        self._note("written", pointer, mask)

    def _note(self, how: str, pointer: Pointer, mask: Any) -> None:
        at, seen = np.broadcast_arrays(pointer.at, mask)
        self.moved |= {(how, pointer.name, int(i)) for i in at[seen]}


def moved(kernel: str, **numbers: int) -> int:
    """The bytes that one of NVIDIA's kernels moves for one token in BF16, without the tables of cosines and sines."""
    (folder,) = find_spec("megatron.core").submodule_search_locations  # type: ignore[union-attr, misc]
    tree = ast.parse((Path(folder) / "fusions/fused_mla_yarn_rope_apply.py").read_text(encoding="utf-8"))
    body = next(n for n in tree.body if isinstance(n, ast.FunctionDef) and n.name == kernel)
    body.decorator_list = []
    tl = Noting()
    space: dict[str, Any] = {"tl": tl, "triton": SimpleNamespace(cdiv=lambda a, b: -(-a // b))}
    exec(compile(ast.Module([body], []), kernel, "exec"), space)
    absent = dict.fromkeys(("cu_seqlens_q", "cu_seqlens_kv"))
    others: dict[str, Any] = {**absent, "BLOCK_H": HEADS_AT_ONCE, **numbers}
    given = {a.arg: Pointer(a.arg) if a.arg in TENSORS else others.get(a.arg, 1) for a in body.args.args}
    for tl.head in range(numbers["head_num"] // HEADS_AT_ONCE):
        space[kernel](**given)
    return 2 * sum(name not in TABLES for _, name, _ in tl.moved)


def kernels(m: Model, way: str) -> int:
    """The bytes of a token for both kernels of one direction."""
    keys, both = m.qk_nope_dim + m.qk_rope_dim, m.qk_nope_dim + m.v_head_dim
    q = moved(f"rotary_{way}_q_kernel", qk_head_dim=m.qk_nope_dim, emb_dim=m.qk_rope_dim, head_num=m.heads,
              stride_x_nheads=keys)  # fmt: skip
    kv = moved(
        f"rotary_{way}_kv_kernel", emb_dim=m.qk_rope_dim, k_dim=m.qk_nope_dim, v_dim=m.v_head_dim, head_num=m.heads,
        stride_kv_nheads=both, stride_k_nheads=keys, stride_v_nheads=m.v_head_dim, stride_dk_nheads=keys,
        stride_dv_nheads=m.v_head_dim, stride_dkv_nheads=both,
    )  # fmt: skip
    return q + kv


@pytest.mark.bridge
def test_a_fused_rotary_embedding_moves_what_nvidias_kernels_move() -> None:
    m = model("kimi_k2")
    assert compute.rotary(m, True) == pytest.approx((kernels(m, "fwd"), kernels(m, "bwd")), rel=0.01)


@pytest.mark.parametrize(
    ("run", "fused"),
    [("deepseek_v3; h100 x 64; throughput first", True), ("moonlight_16b; h100 x 8; throughput first", False)],
)
def test_a_run_fuses_where_its_recipe_does(run: str, fused: bool) -> None:
    program = compiled(run).programs[0]
    apart = evolve(program, sets={**program.sets, "model.apply_rope_fusion": False})
    assert make_cost(lower(program, 64)).fused_rotary is fused
    assert not make_cost(lower(apart, 64)).fused_rotary


def test_a_fused_rotary_embedding_is_faster_and_its_recompute_repeats_it() -> None:
    fused = Cost(model("deepseek_v3"), hardware("h100"), 1024, 4096, 8192)
    separate = evolve(fused, fused_rotary=False)
    row = {"ep": 64, "pp": 8, "micro_batch": 1}
    faster, slower = (c.time_report(row)["compute"] for c in (fused, separate))
    assert 0.9 < faster / slower < 0.97
    again, more = (c.time_report({**row, "recompute": UP_PROJECTION})["recompute"] for c in (fused, separate))
    assert more > again > 0
