"""The table of Bridge's recipes against the wheel, and against the layouts that another script extracted from it."""

import json
from typing import Any

import pytest

from moedsl.bridge.verify.client import Server
from moedsl.compiler import load_stdlib
from moedsl.facts import axes, recipes
from moedsl.facts.values import stages
from moedsl.lang.parser import parse
from moedsl.rules.check.check import check
from moedsl.support.source import Source
from tests.helpers import rotation
from tests.helpers.paths import DATA, ROOT
from tests.stdlib.test_recipes import LATE
from tools import make_recipes

TABLE = [
    r
    for r in map(
        recipes.named,
        [
            json.loads(line)["module"] + ":" + json.loads(line)["name"]
            for line in make_recipes.FILE.read_text(encoding="utf-8").splitlines()
        ],
    )
    if r
]
LAYOUTS: dict[str, dict[str, Any]] = {
    f"megatron.bridge.{r['module']}:{r['function']}": r
    for r in map(json.loads, (DATA / "recipe_layouts.jsonl").read_text(encoding="utf-8").splitlines())
}
EXTRACTED = [r for r in TABLE if r.task != "peft"]
"""The other script left out recipes for adapters; tests/recipes/test_adapters_bridge.py asks Bridge about those."""
UNSAID = ("ncclep", "fused_group_mlp")
"""A dispatcher and an offload that are no words of the language."""
UNBUILT = {name.partition("-")[2] for name, laws in LATE.items() if laws == ["check.pipeline_layout"]}
"""Recipes with a pipeline layout that Megatron builds no model with, as `tests/stdlib/test_laws_bridge.py` shows."""


def test_a_line_comes_back() -> None:
    assert [recipes.line(r) for r in TABLE] == make_recipes.FILE.read_text(encoding="utf-8").splitlines()


def test_the_documents_say_how_many_there_are() -> None:
    adapters = len(TABLE) - len(EXTRACTED)
    assert f"There are {len(TABLE)}, {adapters} of them for adapters" in (ROOT / "docs/recipes.md").read_text("utf-8")
    assert f"the wheel's {len(TABLE)} recipes" in (ROOT / "docs/testing.md").read_text("utf-8")


def expected(row: dict[str, Any], name: str) -> Any:
    axis = axes.BY_NAME[name]
    value = row.get(name, axis.decode(axis.off))
    return axis.decode(axis.encode(value))


def test_each_is_the_layout_that_was_extracted() -> None:
    for recipe in EXTRACTED:
        row, own = LAYOUTS[recipe.target], {**recipe.formats, **recipe.layout}
        for axis in axes.AXES:
            value = own.get(axis.name, axis.decode(axis.off))
            assert axis.decode(axis.encode(value)) == expected(row, axis.name), (recipe.target, axis.name)
        said = ("seq", "global_batch", "gpus", "task")
        assert (recipe.seq, recipe.batch, recipe.gpus, recipe.task) == tuple(row[n] for n in said), recipe.target
        theirs, ours = row.get("pipeline_layout"), recipe.layout.get("pipeline_layout")
        assert (theirs and stages(theirs)) == (ours and stages(ours)), recipe.target


def test_none_is_missing() -> None:
    """A name without its GPUs is another name of a recipe, or one for any machine."""
    known = load_stdlib().hardware
    wanted = {
        target
        for target, r in LAYOUTS.items()
        if r["hardware"] in known and "verdict" not in r and f"_{r['gpus']}gpu_{r['hardware']}_" in r["function"]
        and not any(word in json.dumps(r) for word in UNSAID) and r["function"] not in UNBUILT
    }  # fmt: skip
    assert {r.target for r in EXTRACTED} == wanted


def test_the_pins_of_each_are_statements() -> None:
    library = load_stdlib()
    for r in rotation.one_of_each("pins of recipes", TABLE, lambda r: r.hf):
        source = Source(r.name, r.pins)
        module, found = parse(source)
        assert module is not None and not found
        model = next(n for n in library.models if library.model(n)[0].hf == r.hf)  # type: ignore[union-attr]
        depth = "set model.mtp_num_layers = 2" if r.hf.startswith("nvidia/") and "Nano" not in r.hf else ""
        run, _ = parse(Source("run.moe", f"{model}; {r.hardware} x {r.gpus}; {depth}\n"))
        assert run is not None
        programs, diagnostics = check(run, library, module.items)
        assert not [d.message for d in diagnostics if d.is_error], r.name
        pinned = {n: axes.BY_NAME[n].decode(p.code) for n, p in programs[0].pins.items()}
        assert {n: v for n, v in pinned.items() if axes.BY_NAME[n].is_on(v)} == {
            n: v for n, v in r.layout.items() if n != "pipeline_layout"
        }


def test_of_two_functions_of_a_name_the_tuned_one_counts() -> None:
    name = "qwen3_235b_a22b_pretrain_256gpu_h100_bf16_config"
    found = recipes.named(name)
    assert found is not None and found.tuned
    library = recipes.named(f"megatron.bridge.recipes.qwen.h100.qwen3_moe:{name}")
    assert library is not None and not library.tuned


@pytest.mark.bridge
def test_the_wheel_has_the_recipes_of_the_table(server: Server) -> None:
    found = make_recipes.wanted()
    targets = [c.file for c in found]
    assert {r.target for r in TABLE} <= {*targets}
    if rotation.ALL:
        assert make_recipes.lines(found, server.resolve(found)) == [recipes.line(r) for r in TABLE]
        return
    taken = {r.target for r in rotation.one_of_each("table of recipes", TABLE, lambda r: r.hf)}
    some = [c for c in found if c.file in taken]
    assert make_recipes.lines(some, server.resolve(some)) == [recipes.line(r) for r in TABLE if r.target in taken]
