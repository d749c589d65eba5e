"""`tools/measure_gpu.py` on a CPU: what it measures without a GPU, what it stores, and how it asks Transformer Engine."""

import json
import sys
from importlib import import_module
from importlib.metadata import version
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import gpu_against_estimate as against
import measure_gpu
import pytest

from tests.helpers.cost_models import hardware

TRIAL = ("--device", "cpu", "--quick")


def lines(file: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in file.read_text().splitlines()]


@pytest.fixture(scope="session")
def parts() -> SimpleNamespace:
    """PyTorch and what needs it, imported for the first test that asks: every worker imports this file."""
    of = ("attention", "engine", "host", "passes", "permutation", "products", "timing")
    names = ("torch", "tests.calibrate.fake_engine", *(f"gpu.{name}" for name in of))
    return SimpleNamespace(**{name.rpartition(".")[2]: import_module(name) for name in names})


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
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], parts: SimpleNamespace
) -> None:
    def refuse(*args: object) -> object:
        raise RuntimeError("no kernel for this shape\nand more")

    monkeypatch.setattr(parts.products, "grouped", refuse)
    file = tmp_path / "lines.jsonl"
    assert measure_gpu.main([*TRIAL, "products", "copy", "--out", str(file)]) == 0
    assert {each["part"] for each in lines(file)} == {"copy"}
    said = capsys.readouterr().err
    assert '"expert_hidden": 32' in said and "no kernel for this shape" in said and "1 measurements refused" in said


def test_without_a_gpu_it_says_so_and_ends_with_2(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], parts: SimpleNamespace
) -> None:
    monkeypatch.setattr(parts.torch.cuda, "is_available", lambda: False)
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


def test_idle_time_is_what_no_kernel_covers(parts: SimpleNamespace) -> None:
    assert parts.host.busy([(0, 10), (2, 5), (8, 12), (20, 21)]) == 13


def test_pytorchs_operators_compute_what_they_are_named_for(parts: SimpleNamespace) -> None:
    torch, products, permutation = parts.torch, parts.products, parts.permutation
    bench = parts.timing.Bench("cpu", quick=True)
    x, weights = bench.random(12, 8), bench.random(3, 5, 8)
    want = torch.cat([rows @ w.T for rows, w in zip(x.split([4, 6, 2]), weights, strict=True)])
    assert torch.allclose(products.grouped(x, weights, [4, 6, 2]), want, atol=0.1)
    chosen = torch.zeros(12, 6, dtype=torch.bool).scatter_(1, torch.rand(12, 6).topk(2).indices, True)
    sent = permutation.sent(x, chosen, 2)
    assert torch.equal(sent, torch.cat([x[chosen[:, e]] for e in range(6)]))
    assert torch.equal(permutation.back(sent, chosen, 2), x + x)


# ---------------------------------------------------------------- Transformer Engine


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch, parts: SimpleNamespace) -> Any:
    """A bench on which each part finds a Transformer Engine that binds calls as the wheel's source does."""
    for part in (parts.products, parts.attention, parts.permutation, parts.passes):
        monkeypatch.setattr(part, "engine", lambda bench: parts.fake_engine.FAKE)
    for part in (parts.products, parts.passes):
        monkeypatch.setattr(part, "recipes", lambda te: {"bf16": None, "mxfp8": "a recipe"})
    monkeypatch.setattr(parts.passes, "quantizer", lambda recipe: lambda x: x.to(parts.torch.float8_e4m3fn))
    return parts.timing.Bench("cpu", quick=True)


@pytest.mark.parametrize("name", ["products", "attention", "permutation", "passes"])
def test_a_part_asks_transformer_engine_as_its_source_allows(fake: Any, name: str, parts: SimpleNamespace) -> None:
    found = [(case, case.run(fake)) for case in getattr(parts, name).cases(fake)]
    assert {case.by for case, _ in found if case.what != "swiglu"} == {"transformer_engine"}
    assert all(times.seconds > 0 for _, each in found for times in each.values())
    if name == "products":
        assert [case.precision for case, _ in found] == ["bf16", "mxfp8"]
        assert parts.fake_engine.RECIPES[-2:] == [(False, None), (True, "a recipe")]


def test_the_four_sorts_put_every_token_back(
    fake: Any, parts: SimpleNamespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    (case,) = parts.permutation.cases(fake)
    tokens = parts.torch.randn(case.shape["tokens"], case.shape["hidden"], requires_grad=True)
    monkeypatch.setattr(fake, "random", lambda *shape, learned: tokens)
    case.run(fake)
    assert parts.torch.allclose(parts.fake_engine.UNPERMUTED[-1], case.shape["topk"] * tokens)


def test_what_the_parts_use_is_public_in_transformer_engine(parts: SimpleNamespace) -> None:
    source, signature = parts.fake_engine.ENGINE, parts.fake_engine.signature
    text = (source / "__init__.py").read_text()
    asked = ("is_fp8_available", "is_fp8_block_scaling_available", "is_mxfp8_available", "is_nvfp4_available")
    for name in (*vars(parts.fake_engine.FAKE), *asked):
        assert f"import {name}\n" in text or f"    {name},\n" in text, name
    recipes = (source.parent / "common/recipe/__init__.py").read_text()
    assert all(f"class {name}(" in recipes for name in NAMES)
    assert signature("quantization.py", "RecipeState", "create").bind("a recipe", mode="forward")


NAMES = ("Float8CurrentScaling", "Float8BlockScaling", "MXFP8BlockScaling", "NVFP4BlockScaling")


def test_a_gpu_has_the_recipes_that_its_engine_allows(monkeypatch: pytest.MonkeyPatch, parts: SimpleNamespace) -> None:
    hopper = SimpleNamespace(
        is_fp8_available=lambda: True,
        is_fp8_block_scaling_available=lambda: True,
        is_mxfp8_available=lambda: False,
        is_nvfp4_available=lambda: False,
    )
    made = SimpleNamespace(**{name: (lambda name=name: name) for name in NAMES})
    monkeypatch.setattr(parts.engine, "import_module", lambda name: made)
    assert parts.engine.recipes(hopper) == {"bf16": None, "fp8_current": NAMES[0], "fp8_blockwise": NAMES[1]}
