"""`tools/measure_gpu.py` on a CPU: what it measures without a GPU, what it stores, and how it asks Transformer Engine."""

from __future__ import annotations

import ast
import inspect
import json
import sys
from functools import cache
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import gpu_against_estimate as against
import measure_gpu
import pytest
import torch
from gpu import attention, engine, host, passes, permutation, products
from gpu.timing import Bench

from tests.helpers.cost_models import hardware

TRIAL = ("--device", "cpu", "--quick")
ENGINE = Path(str((find_spec("transformer_engine") or SimpleNamespace(origin="")).origin)).parent / "pytorch"


def lines(file: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in file.read_text().splitlines()]


@pytest.fixture(scope="module")
def measured(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The file of all parts on this CPU."""
    file = tmp_path_factory.mktemp("measured") / "cpu" / "lines.jsonl"
    assert measure_gpu.main([*TRIAL, "--out", str(file)]) == 0
    return file


def test_every_part_but_the_delta_nets_runs_on_a_cpu(measured: Path) -> None:
    found = lines(measured)
    assert {each["part"] for each in found} == {*measure_gpu.PARTS} - {"delta_nets"}
    for each in found:
        assert each["seconds"] > 0 or each["direction"] == "idle"
        assert each["low"] <= each["seconds"] <= each["high"] and each["runs"] >= 2
        assert each["software"]["torch"] == version("torch") and each["device"]
        assert each["by"] == "torch" and each["precision"] == "bf16"


def test_the_estimate_has_a_formula_for_every_line(measured: Path) -> None:
    """With the shapes under the names that the comparison reads."""
    assert all(against.estimated(each, hardware("h100")) > 0 for each in lines(measured))


def test_the_same_command_measures_nothing_twice(measured: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = measured.read_text()
    assert measure_gpu.main([*TRIAL, "--out", str(measured)]) == 0
    assert measured.read_text() == before
    assert "0 lines" in capsys.readouterr().err


def test_it_stops_in_time_and_goes_on(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "lines.jsonl"
    assert measure_gpu.main([*TRIAL, "copy", "--seconds", "0", "--out", str(file)]) == 0
    assert not file.exists() and "the same command goes on" in capsys.readouterr().err
    assert measure_gpu.main([*TRIAL, "copy", "--out", str(file)]) == 0
    assert [each["what"] for each in lines(file)] == ["hbm", "to_host", "from_host"]


def test_a_refused_shape_is_named_and_the_others_are_measured(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def refuse(*args: object) -> object:
        raise RuntimeError("no kernel for this shape\nand more")

    monkeypatch.setattr(products, "grouped", refuse)
    file = tmp_path / "lines.jsonl"
    assert measure_gpu.main([*TRIAL, "products", "copy", "--out", str(file)]) == 0
    assert {each["part"] for each in lines(file)} == {"copy"}
    said = capsys.readouterr().err
    assert '"expert_hidden": 32' in said and "no kernel for this shape" in said and "1 measurements refused" in said


def test_without_a_gpu_it_says_so_and_ends_with_2(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert measure_gpu.main([]) == 2
    (said,) = capsys.readouterr().err.splitlines()
    assert "PyTorch finds no GPU on this machine" in said and "--device cpu --quick" in said
    monkeypatch.setitem(sys.modules, "torch", None)
    assert measure_gpu.main([]) == 2
    (said,) = capsys.readouterr().err.splitlines()
    assert "PyTorch cannot be imported" in said


def test_more_local_experts_need_more_launches(measured: Path) -> None:
    counts = [(e["shape"]["local_experts"], e["launches"]) for e in lines(measured) if e["direction"] == "host"]
    assert [n for n, _ in counts] == [2, 4] and counts[0][1] < counts[1][1]


def test_idle_time_is_what_no_kernel_covers() -> None:
    assert host.busy([(0, 10), (2, 5), (8, 12), (20, 21)]) == 13


def test_pytorchs_operators_compute_what_they_are_named_for() -> None:
    bench = Bench("cpu", quick=True)
    x, weights = bench.random(12, 8), bench.random(3, 5, 8)
    want = torch.cat([rows @ w.T for rows, w in zip(x.split([4, 6, 2]), weights, strict=True)])
    assert torch.allclose(products.grouped(x, weights, [4, 6, 2]), want, atol=0.1)
    chosen = torch.zeros(12, 6, dtype=torch.bool).scatter_(1, torch.rand(12, 6).topk(2).indices, True)
    sent = permutation.sent(x, chosen, 2)
    assert torch.equal(sent, torch.cat([x[chosen[:, e]] for e in range(6)]))
    assert torch.equal(permutation.back(sent, chosen, 2), x + x)


# ---------------------------------------------------------------- Transformer Engine


@cache
def signature(file: str, name: str, method: str = "") -> inspect.Signature:
    """The parameters of a function, or of a method without self, in the wheel's source, which needs a GPU to import."""
    body: list[ast.stmt] = ast.parse((ENGINE / file).read_text()).body
    for wanted in filter(None, (name, method)):
        found = next(n for n in body if isinstance(n, (ast.ClassDef, ast.FunctionDef)) and n.name == wanted)
        body = found.body
    assert isinstance(found, ast.FunctionDef)
    given, kind = found.args, inspect.Parameter
    plain = [a.arg for a in given.args if a.arg != "self"]
    optional = len(plain) - len(given.defaults)
    parameters = [
        kind(arg, kind.POSITIONAL_OR_KEYWORD, default=kind.empty if at < optional else None)
        for at, arg in enumerate(plain)
    ]
    only = zip(given.kwonlyargs, given.kw_defaults, strict=True)
    parameters += [kind(a.arg, kind.KEYWORD_ONLY, default=None if d else kind.empty) for a, d in only]
    more = [kind(given.kwarg.arg, kind.VAR_KEYWORD)] if given.kwarg else []
    return inspect.Signature(parameters + more)


GROUPED = "module/grouped_linear.py", "GroupedLinear"
ATTENTION = "attention/dot_product_attention/dot_product_attention.py", "DotProductAttention"


class Grouped(torch.nn.Module):
    """A grouped linear with the interface of the wheel's."""

    def __init__(self, *given: Any, **more: Any) -> None:
        super().__init__()
        got = signature(*GROUPED, "__init__").bind(*given, **more).arguments
        shape = got["num_gemms"], got["out_features"], got["in_features"]
        self.weight = torch.nn.Parameter(torch.randn(shape, dtype=got["params_dtype"]))
        assert got["fuse_wgrad_accumulation"] and not got["bias"]
        self.first = list[bool]()

    def forward(self, *given: Any, **more: Any) -> torch.Tensor:
        got = signature(*GROUPED, "forward").bind(*given, **more).arguments
        assert all(weight.main_grad.dtype == torch.float32 for weight in self.parameters())  # type: ignore[union-attr]
        self.first.append(got["is_first_microbatch"])
        return products.grouped(got["inp"], self.weight, got["m_splits"])


class Attention:
    """Core attention with the interface of the wheel's: (sequence, batch, heads x width)."""

    def __init__(self, *given: Any, **more: Any) -> None:
        self.got = signature(*ATTENTION, "__init__").bind(*given, **more).arguments

    def __call__(self, *given: Any, **more: Any) -> torch.Tensor:
        got = signature(*ATTENTION, "forward").bind(*given, **more).arguments
        assert self.got["qkv_format"] == "sbhd" and self.got["attn_mask_type"] == "causal"
        assert got["query_layer"].shape[2] == self.got["num_attention_heads"]
        assert got["key_layer"].shape[2] == got["value_layer"].shape[2] == self.got["num_gqa_groups"]
        assert (got["key_layer"].shape[3], got["value_layer"].shape[3]) == self.got["kv_channels"]
        return attention.plain(got["query_layer"], got["key_layer"], got["value_layer"], False)


def norm(*given: Any, **more: Any) -> torch.nn.Module:
    got = signature("ops/basic/rmsnorm.py", "RMSNorm", "__init__").bind(*given, **more).arguments
    return torch.nn.RMSNorm(got["normalized_shape"], dtype=got["dtype"])


RECIPES = list[Any]()


class Autocast:
    """The context of a recipe."""

    def __init__(self, *given: Any, **more: Any) -> None:
        self.got = signature("quantization.py", "autocast", "__init__").bind(*given, **more).arguments

    def __enter__(self) -> None:
        RECIPES.append((self.got["enabled"], self.got["recipe"]))

    def __exit__(self, *error: object) -> None:
        pass


def bound(name: str) -> Any:
    return signature("permutation.py", name).bind


def permuted(*given: Any, **more: Any) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    got = bound("moe_permute_with_probs")(*given, **more).arguments
    chosen, rows = got["routing_map"], got["num_out_tokens"]
    sent = permutation.sent(got["inp"], chosen, rows // len(chosen))
    return sent, got["probs"].T[chosen.T], chosen


def sorted_chunks(*given: Any, **more: Any) -> tuple[torch.Tensor, torch.Tensor]:
    got = bound("moe_sort_chunks_by_index_with_probs")(*given, **more).arguments
    chunks = (torch.split(got[name], got["split_sizes"].tolist()) for name in ("inp", "probs"))
    first, second = (torch.cat([each[i] for i in got["sorted_index"]]) for each in chunks)
    return first, second


def sorted_back(*given: Any, **more: Any) -> torch.Tensor:
    got = bound("moe_sort_chunks_by_index")(*given, **more).arguments
    chunks = torch.split(got["inp"], got["split_sizes"].tolist())
    return torch.cat([chunks[i] for i in got["sorted_index"]])


def unpermuted(*given: Any, **more: Any) -> torch.Tensor:
    got = bound("moe_unpermute")(*given, **more).arguments
    assert got["restore_shape"] == (len(got["row_id_map"]), got["inp"].shape[1])
    found = permutation.back(got["inp"], got["row_id_map"], len(got["inp"]) // len(got["row_id_map"]))
    UNPERMUTED.append(found)
    return found


UNPERMUTED = list[torch.Tensor]()
FAKE = SimpleNamespace(
    GroupedLinear=Grouped,
    DotProductAttention=Attention,
    RMSNorm=norm,
    autocast=Autocast,
    moe_permute_with_probs=permuted,
    moe_sort_chunks_by_index_with_probs=sorted_chunks,
    moe_sort_chunks_by_index=sorted_back,
    moe_unpermute=unpermuted,
)


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> Bench:
    """A bench on which each part finds a Transformer Engine that binds calls as the wheel's source does."""
    for part in (products, attention, permutation, passes):
        monkeypatch.setattr(part, "engine", lambda bench: FAKE)
    for part in (products, passes):
        monkeypatch.setattr(part, "recipes", lambda te: {"bf16": None, "mxfp8": "a recipe"})
    monkeypatch.setattr(passes, "quantizer", lambda recipe: lambda x: x.to(torch.float8_e4m3fn))
    return Bench("cpu", quick=True)


@pytest.mark.parametrize("part", [products, attention, permutation, passes])
def test_a_part_asks_transformer_engine_as_its_source_allows(fake: Bench, part: Any) -> None:
    found = [(case, case.run(fake)) for case in part.cases(fake)]
    assert {case.by for case, _ in found if case.what != "swiglu"} == {"transformer_engine"}
    assert all(times.seconds > 0 for _, each in found for times in each.values())
    if part is products:
        assert [case.precision for case, _ in found] == ["bf16", "mxfp8"]
        assert RECIPES[-2:] == [(False, None), (True, "a recipe")]


def test_the_four_sorts_put_every_token_back(fake: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    (case,) = permutation.cases(fake)
    tokens = torch.randn(case.shape["tokens"], case.shape["hidden"], requires_grad=True)
    monkeypatch.setattr(fake, "random", lambda *shape, learned: tokens)
    UNPERMUTED.clear()
    case.run(fake)
    assert torch.allclose(UNPERMUTED[0], case.shape["topk"] * tokens)


def test_what_the_parts_use_is_public_in_transformer_engine() -> None:
    text = (ENGINE / "__init__.py").read_text()
    for name in (*vars(FAKE), "is_fp8_available", "is_fp8_block_scaling_available", "is_mxfp8_available", "is_nvfp4_available"):  # fmt: skip
        assert f"import {name}\n" in text or f"    {name},\n" in text, name
    recipes = (ENGINE.parent / "common/recipe/__init__.py").read_text()
    for name in ("Float8CurrentScaling", "Float8BlockScaling", "MXFP8BlockScaling", "NVFP4BlockScaling"):
        assert f"class {name}(" in recipes
    made = signature("quantization.py", "RecipeState", "create")
    assert made.bind("a recipe", mode="forward")


def test_a_gpu_has_the_recipes_that_its_engine_allows(monkeypatch: pytest.MonkeyPatch) -> None:
    names = ("Float8CurrentScaling", "Float8BlockScaling", "MXFP8BlockScaling", "NVFP4BlockScaling")
    hopper = SimpleNamespace(
        is_fp8_available=lambda: True,
        is_fp8_block_scaling_available=lambda: True,
        is_mxfp8_available=lambda: False,
        is_nvfp4_available=lambda: False,
    )
    made = SimpleNamespace(**{name: (lambda name=name: name) for name in names})
    monkeypatch.setattr(engine, "import_module", lambda name: made)
    assert engine.recipes(hopper) == {"bf16": None, "fp8_current": names[0], "fp8_blockwise": names[1]}
