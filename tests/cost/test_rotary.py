"""The bytes of the fused rotary embedding of latent attention are those that Megatron-Core's own kernels move: they run
here on pointers that note each number that is read or written."""

from __future__ import annotations

import ast
from importlib.util import find_spec
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from attrs import evolve

from moedsl.cost import Cost, compute
from moedsl.facts.axes import BY_NAME
from moedsl.facts.facts import Model
from moedsl.solver.problem import lower
from moedsl.solver.solve import make_cost
from tests.helpers.cost_models import hardware, model
from tests.helpers.programs import compiled

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

    def to(self, _: object) -> Block:
        return self


class Pointer:
    """A tensor, or numbers of it, by name and offset."""

    dtype = SimpleNamespace(element_ty=None)

    def __init__(self, name: str, at: Any = 0) -> None:
        self.name, self.at = name, at

    def __add__(self, more: Any) -> Pointer:
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
