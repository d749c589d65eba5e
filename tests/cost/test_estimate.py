"""Memory and step time: columns against single rows, what has to be monotone, and what others have measured."""

import ast
import tracemalloc
from collections.abc import Iterator
from itertools import product

import numpy as np
import pytest
from attrs import evolve

from moedsl.cost import Cost, flops, memory, parameters, pipeline, rows, step
from moedsl.cost.estimate import _ALONE
from moedsl.cost.rows import FEW, Known, Table
from moedsl.facts.axes import BY_NAME
from tests.helpers import rotation
from tests.helpers.cost_models import hardware, model
from tests.helpers.paths import ROOT
from tests.helpers.tables import table_of

MODELS = ["qwen3_30b_a3b", "deepseek_v3", "gpt_oss_120b", "moonlight_16b", "qwen3_vl_235b_a22b"]
LADDER = table_of("cost", "ladder")
FLAGS = ("offload", "ep_overlap", "delay_wgrad", "sharding", "moments", "grad_reduce")
GRAPHS = [[], ["moe_router"], ["attn", "moe_router", "moe_preprocess"], ["full_iteration"]]


def priced_rows(n: int, seed: int) -> dict[str, np.ndarray]:
    """Random rows, legal or not; some have no layout."""
    pick = np.random.default_rng(seed)
    two = lambda top: 2 ** pick.integers(0, top, n)  # noqa: E731
    words = lambda axis, sets: np.array([BY_NAME[axis].encode(s) for s in sets])[pick.integers(0, len(sets), n)]  # noqa: E731
    return {
        "pp": two(5),
        "vpp": two(3),
        "tp": two(4),
        "cp": two(3),
        "etp": two(2),
        "ep": two(6),
        "micro_batch": two(3),
        "recompute": words("recompute", LADDER),
        "cuda_graph": words("cuda_graph", GRAPHS),
        **{name: pick.integers(0, 2, n) for name in FLAGS},
        "dispatcher": pick.integers(0, 3, n),
        "precision": pick.integers(0, 5, n),
    }


def one(cols, i):
    return {k: int(v[i]) for k, v in cols.items()}


@pytest.mark.parametrize(("key", "gpu"), rotation.some("reports", [*product(MODELS, ("h100", "gb200"))], 2))
def test_columns_say_what_the_reports_say(key, gpu):
    cost = Cost(model(key), hardware(gpu), 512, 4096, 2048)
    cols = priced_rows(150, seed=7)
    peak, seconds, exists = cost.memory(cols), cost.time(cols), cost.has_layout(cols["pp"], cols["vpp"])
    assert 0 < exists.sum() < 150
    for i in rotation.some("rows", range(150), 40):
        if not exists[i]:
            assert np.isinf(peak[i])
            assert np.isinf(seconds[i])
            with pytest.raises(ValueError, match="no pipeline layout"):
                cost.memory_report(one(cols, i))
            continue
        assert peak[i] == pytest.approx(max(s.total for s in cost.memory_report(one(cols, i))), abs=1)
        report = cost.time_report(one(cols, i))
        assert set(report) == set(step.PARTS)
        assert seconds[i] == pytest.approx(sum(report.values()), abs=1e-9, rel=1e-12)
        assert min(report.values()) >= 0


OF_EACH_KIND = {
    "gqa": "qwen3_30b_a3b", "mla": "deepseek_v3", "sparse": "glm52_744b", "hybrid": "nemotron_3_nano",
    "delta net": "qwen3_next_80b_a3b", "window": "mimo_v2_flash", "vision": "qwen3_vl_30b_a3b",
}  # fmt: skip


@pytest.mark.parametrize("key", rotation.some("kinds", [*OF_EACH_KIND.values()], 3))
def test_several_machines_at_once_are_each_of_them_alone(key):
    """Each constant of a machine moved, few rows and many: what is many is made unique before it is priced."""
    cost, (few, many) = (
        Cost(model(key), hardware("gb200"), 512, 4096, 2048),
        (priced_rows(n, seed=3) for n in (20, 400)),
    )
    k = cost.hardware.constants
    names = [c.name for c in k.known.values() if getattr(k, c.name) > 0]
    moved = {n: np.array([[getattr(k, n) * (0.9 if n == other else 1.0)] for other in names]) for n in names}
    at_once, many_at_once = (_on(cost, **moved).time(cols) for cols in (few, many))
    assert many_at_once.shape == (len(names), 400)
    for name in rotation.some(f"constants of {key}", names, 4):
        i, alone = names.index(name), _on(cost, **{name: getattr(k, name) * 0.9})
        assert at_once[i].tolist() == alone.time(few).tolist(), name
    assert many_at_once[i].tolist() == alone.time(many).tolist()
    assert (at_once != cost.time(few)).any(axis=1).sum() > 20


def _on(cost, **constants):
    return evolve(cost, hardware=evolve(cost.hardware, constants=evolve(cost.hardware.constants, **constants)))


def raised(cols, **codes):
    return {**cols, **{k: np.full_like(cols["pp"], v) for k, v in codes.items()}}


MONOTONE = table_of("cost", "estimate: monotone")


@pytest.mark.parametrize(
    ("key", "change"), rotation.one_of_each("faster", [*product(MODELS, MONOTONE)], lambda case: case[1])
)
def test_enabling_more_never_costs_time(key, change):
    axis, less, more = change
    cost = Cost(model(key), hardware("h100"), 512, 8192, 512)
    cols = priced_rows(2000, seed=3)
    before, after = cost.time(raised(cols, **{axis: less})), cost.time(raised(cols, **{axis: more}))
    assert (after <= before).all()


DEARER = [
    ("recompute", a, b) for a, b in [(0, 1), (1, 3), (3, 11), (2, 64), (64, 66), (64, 72), (117, 128), (0, 128)]
] + [("offload", 0, 1)]


@pytest.mark.parametrize(
    ("key", "change"), rotation.one_of_each("dearer", [*product(MODELS, DEARER)], lambda case: case[1])
)
def test_recompute_and_offload_never_save_time_and_offload_saves_memory(key, change):
    axis, less, more = change
    cost = Cost(model(key), hardware("gb200"), 512, 4096, 512)
    cols = priced_rows(2000, seed=5)
    low, high = raised(cols, **{axis: less}), raised(cols, **{axis: more})
    assert (cost.time(high) >= cost.time(low)).all()
    if axis == "offload":
        assert (cost.memory(high) <= cost.memory(low)).all()


def test_peak_is_near_the_measured_one():
    """Qwen3-30B on 16 H100, TP1 EP16, HybridEP, overlap: 62.17 GiB on rank 0 (measured.jsonl m0234)."""
    cost = Cost(model("qwen3_30b_a3b"), hardware("h100"), 16, 4096, 1024)
    row = {"ep": 16, "dispatcher": 2, "cuda_graph": 6, "ep_overlap": 1, "grad_reduce": 1}
    assert cost.memory(row)[0] == pytest.approx(62.166 * 2**30, rel=0.08)


PUBLISHED = table_of("cost", "estimate: published rates")


@pytest.mark.parametrize("key, tokens, tflops", PUBLISHED)
def test_model_flops_are_what_bridge_reports(key, tokens, tflops):
    assert flops.of_token(model(key), 4096) * tokens / 1e12 == pytest.approx(tflops, rel=0.005)


def test_a_frozen_part_has_no_gradients_and_no_optimizer():
    m, row = model("qwen3_vl_30b_a3b"), {"ep": 8}
    say = lambda *words: Cost(m, hardware("gb200"), 8, 4096, 64, freeze=frozenset(words)).memory_report(row)[0]  # noqa: E731
    whole, tower, language = say(), say("freeze_vision", "freeze_projection"), say("freeze_language")
    vision = parameters.vision(m.vision, 1)
    assert whole.weights == tower.weights == language.weights
    assert whole.gradients - tower.gradients == pytest.approx(4 * vision)
    assert language.gradients == pytest.approx(4 * vision)


def test_fsdp_shards_weights_and_more_gpus_shard_further():
    m, row = model("deepseek_v3"), {"ep": 64, "sharding": 1}
    small, large = (Cost(m, hardware("gb300"), n, 4096, 1024).memory_report(row)[0] for n in (64, 128))
    assert large.weights < 0.75 * small.weights
    plain = Cost(m, hardware("gb300"), 128, 4096, 1024).memory_report({"ep": 64})[0]
    assert large.weights + large.gradients < plain.weights
    assert large.params == plain.params


def test_in_flight_microbatches_are_megatrons():
    from moedsl.cost.parameters import live

    assert [live(4, 1, 16, s) for s in range(4)] == [(4,), (3,), (2,), (1,)]
    assert live(4, 1, 2, 0) == (2,)
    assert live(4, 2, 16, 3) == (4, 1)
    assert live(4, 2, 16, 0) == (7, 4)
    assert sum(live(2, 8, 1, 0)) == 8


def test_a_pinned_layout_is_the_only_one():
    text = "Et*5|(t*4|)*14mL"
    cost = Cost(model("deepseek_v3"), hardware("gb300"), 256, 4096, 4096, layout=text)
    assert cost.has_layout(np.array([2, 4, 2, 16]), np.array([8, 4, 4, 1])).tolist() == [True, True, False, True]
    layout, _ = pipeline.parse_layout(text, model("deepseek_v3"), 2, 8)
    report = cost.memory_report({"pp": 2, "vpp": 8, "ep": 32})
    assert [(s.params, s.expert_params) for s in report] == [
        (p.dense, p.expert) for p in (parameters.stage(model("deepseek_v3"), layout, s, 1, 32, 1) for s in range(2))
    ]


def test_scalars_and_missing_columns_are_defaults():
    cost = Cost(model("qwen3_30b_a3b"), hardware("h100"), 64, 4096, 512)
    cols = {"ep": np.array([8, 16]), "pp": 2}
    assert cost.memory(cols).shape == cost.time(cols).shape == (2,)
    assert cost.memory(cols)[1] == cost.memory({"ep": 16, "pp": 2, "tp": 1, "vpp": 1, "precision": 0})[0]
    assert set(cost.covers) == {"memory", "time"}


def test_less_is_cheaper():
    cost = Cost(model("qwen3_235b_a22b"), hardware("gb200"), 256, 4096, 1024)
    row = {"pp": 8, "ep": 32}
    kinds = lambda **more: cost.memory_report({**row, **more})[0]  # noqa: E731
    assert kinds(recompute=128).activations < kinds(recompute=2).activations < kinds().activations
    assert kinds(moments=1).optimizer == pytest.approx(kinds().optimizer * 8 / 12)
    assert kinds(grad_reduce=1).gradients == pytest.approx(kinds().gradients / 2)
    whole = {**row, "cuda_graph": 8, "dispatcher": 2}  # without fused experts the casts eat what MXFP8 wins
    assert cost.time({**whole, "precision": 3})[0] < cost.time(whole)[0]
    assert cost.time({**row, "vpp": 4})[0] < cost.time({**row, "micro_batch": 1})[0]


@pytest.mark.parametrize("which", ["memory", "time"])
def test_a_quarter_of_a_million_rows_stay_small(which):
    cost, cols = Cost(model("deepseek_v3"), hardware("gb200"), 16384, 4096, 16384), priced_rows(250_000, seed=1)
    ask = getattr(cost, which)
    ask({k: v[:1000] for k, v in cols.items()})
    tracemalloc.start()
    ask(cols)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 100e6


def test_kinds_are_the_reports():
    names = ["weights", "gradients", "optimizer", "activations", "buffers"]
    assert list(memory.KINDS) == names
    assert all(hasattr(memory.StageMemory(0, 1, 1, *[1.0] * 5), n) for n in names)
    assert evolve(memory.StageMemory(0, 1, 1, *[1.0] * 5), weights=3.0).total == 7.0


# Prices that are kept: each row is priced once, and has the price that it has alone.


def table(*values: int) -> Table:
    return Table({"tp": np.array(values), "cp": np.ones(len(values), np.int64)}, np.arange(len(values)))


def test_only_new_rows_are_priced() -> None:
    priced, known = list[int](), Known()

    def price(t: Table) -> np.ndarray:
        priced.extend(t["tp"].tolist())
        return np.stack([t["tp"] * 2.0, t["cp"] * 3.0])

    assert known.prices(table(4, 2, 4), ("tp", "cp"), price).tolist() == [[8, 4, 8], [3, 3, 3]]
    assert known.prices(table(8, 2), ("tp", "cp"), price).tolist() == [[16, 4], [3, 3]]
    assert sorted(priced) == [2, 4, 8]
    many = table(*range(FEW + 1))
    assert known.prices(many, ("tp", "cp"), price).tolist() == known.prices(many, ("tp", "cp"), price).tolist()
    assert len(priced) == 3 + 2 * (FEW + 1), "a large table is priced as one"


@pytest.mark.parametrize("key", OF_EACH_KIND.values(), ids=OF_EACH_KIND)
def test_a_row_that_was_priced_with_others_has_its_own_price(key: str) -> None:
    cost, cols, pick = (
        Cost(model(key), hardware("gb200"), 512, 4096, 2048),
        priced_rows(60, seed=11),
        np.random.default_rng(5),
    )
    for _ in range(3):
        at = pick.permutation(60)[:30]
        some = {name: column[at] for name, column in cols.items()}
        fresh = evolve(cost)
        assert cost.time(some).tolist() == fresh.time(some).tolist()
        assert cost.memory(some).tolist() == fresh.memory(some).tolist()
        for case in ("low", "high"):
            assert cost.spare(some, case).tolist() == fresh.spare(some, case).tolist()


def test_the_layers_of_many_rows_are_priced_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows repeat them for each pipeline; and in whatever pieces, a row has its price."""
    cost, some, priced = (
        Cost(model("qwen3_30b_a3b"), hardware("gb200"), 512, 4096, 2048),
        priced_rows(600, seed=3),
        list[int](),
    )
    cols = {name: np.tile(column, 4) for name, column in some.items()} | {"pp": np.repeat([1, 2, 4, 8], 600)}
    price = step.microbatch
    monkeypatch.setattr(step, "microbatch", lambda m, hw, t, *more: priced.append(t.rows) or price(m, hw, t, *more))
    whole = cost.time(cols).tolist()
    assert sum(priced) <= 600
    monkeypatch.setattr("moedsl.cost.rows.CHUNK", 500)
    assert cost.time(cols).tolist() == whole
    assert max(priced[1:]) <= 500 and sum(priced[1:]) == priced[0]


POLICIES = [{"recompute": r, "offload": o, "sharding": s} for r in (0, 3, 128) for o in (0, 1) for s in (0, 1)]


@pytest.mark.parametrize("key", OF_EACH_KIND.values(), ids=OF_EACH_KIND)
def test_the_least_memory_on_other_gpus_follows_from_what_is_kept(key: str) -> None:
    """It bounds what each policy needs there, as if nothing were known of other numbers of GPUs."""
    some = {name: column for name, column in priced_rows(60, seed=11).items() if name not in POLICIES[0]}
    costs = [Cost(model(key), hardware("gb200"), gpus, 4096, gpus) for gpus in (512, 640)]
    for cost in costs:
        least = cost.memory(some, policies=POLICIES)
        each = np.array([cost.memory({**some, **policy}) for policy in POLICIES])
        assert np.all(least <= each.min(axis=0))
        one_by_one = np.min([cost.memory(some, policies=[policy]) for policy in POLICIES], axis=0)
        assert np.all(least <= one_by_one)
        finite = np.isfinite(each[0])
        assert np.all(one_by_one[finite] > 0.9 * each.min(axis=0)[finite])
    assert [*_ALONE].count(evolve(costs[0], gpus=1, global_batch=1)) == 1


# ----------------------------------------------------------------
# Prices of unique rows, brought back to all rows.


@pytest.mark.parametrize("unique", [3, 400])
def test_the_largest_over_stages_is_that_of_each_row_alone(unique: int) -> None:
    """Whether rows share many columns of prices or hardly any."""
    dice = np.random.default_rng(0)
    which, at = dice.integers(0, 4, 120), dice.integers(0, unique, 120)
    prices = dice.random((2, 5, unique))
    profiles = [dice.random((stages, 5)) for stages in (1, 2, 7)]
    found = rows.largest(4, lambda kind: profiles[kind] if kind < 3 else None, which, prices, at)
    for i, (kind, column) in enumerate(zip(which, at, strict=True)):
        each = [max(sum(stage * p[:, column]) for stage in profiles[kind]) if kind < 3 else 0.0 for p in prices]
        assert found[:, i] == pytest.approx(each, rel=1e-12)


# No number of the machine stands in the formulas: each is declared in stdlib/calibration, with a range and a source.

COST = ROOT / "moedsl/cost"
COUNTED = 16
"""Whole numbers up to here count something: bytes of a format, passes of a formula, tensors that a module keeps."""
REVIEWED = {
    "compute.py": {
        36: "bytes of a split norm's kernels, read from their code",
        46: "bytes of a norm of separate kernels, read from their code",
        32: "bytes of a norm of values, read from its code",
        256.0: "the widths of a head of which `attention` is stated",
        1.03: "bytes of a number in MXFP8 with its scales",
        0.5625: "bytes of a number in NVFP4 with its scales",
        0.75: "of a causal ring, the mean share of the tokens that a step joins",
        1e12: "a unit",
    },
    "communication.py": {16384: "the tokens for which `skew` and `straggling` are stated"},
    "memory.py": {64: "tokens of a chunk of NCCL EP's buffers (core transformer/moe/token_dispatcher.py:1598)"},
    "estimate.py": {
        20: "bits of a key",
        0xFFFFF: "bits of a key",
        1e12: "a unit",
        1e-9: "a tolerance",
        4096: "rows that are priced at once",
    },
    "flops.py": {128: "padding of the vocabulary in Bridge", 1280: "the same with MLA", 3.5: "Bridge's own formula"},
    "formats.py": {
        1.03: "bytes of a number in blockwise FP8 or MXFP8 with its scales",
        2.0625: "the same by rows and by columns",
        0.5625: "bytes of a number in NVFP4 with its scales",
        1.125: "the same by rows and by columns",
    },
    "cases.py": {1.2: "a default of Megatron-Core", 1.5: "a default of Megatron-Core"},
    "goodput.py": {
        60: "steps of a bisection",
        700.0: "the largest argument of exp",
        1e-12: "a tolerance",
        2048: "the GPUs for which `restart` is stated",
    },
    "blocks.py": {
        128: "the chunk of Megatron's scan",
        64: "the chunk of fla's kernels, and heads that FlashMLA works on",
        30: "a power of two, of cuDNN's",
        31: "the same",
    },
    "parameters.py": {1e9: "a default of Megatron FSDP"},
    "pipeline.py": {
        1e-9: "a tolerance",
        0.6: "a weight by which layouts are balanced, which no estimate reads",
        20_000: "a limit of a text",
    },
    "rows.py": {
        50_000: "rows whose prices are kept",
        100_000: "rows of a chunk",
        256: "rows that are not made unique",
        4096: "a size of a table",
    },
    "step.py": {0.5: "halves of a count", 0.25: "the same"},
}
"""What else stands there, by file, and what it is."""


def numbers(text: str) -> Iterator[float]:
    """Yield the numbers of a module beyond small whole ones, without those of caches."""
    tree = ast.parse(text)
    sizes = {id(k.value) for n in ast.walk(tree) if isinstance(n, ast.Call) for k in n.keywords if k.arg == "maxsize"}
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, int | float) and id(node) not in sizes:
            counts = node.value == int(node.value) and node.value <= COUNTED
            if not counts:
                yield node.value


def test_every_number_in_the_formulas_is_reviewed() -> None:
    found = {p.name: {*numbers(p.read_text(encoding="utf-8"))} for p in COST.glob("*.py")}
    assert {name: some for name, some in found.items() if some} == {
        name: {*some} for name, some in REVIEWED.items() if some
    }


def test_a_number_of_a_machine_would_be_found() -> None:
    assert [*numbers("def f(x): return x * 0.62 + 4 * 45e9")] == [0.62, 45e9]
