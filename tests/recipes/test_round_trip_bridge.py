"""NVIDIA's recipes through `moedsl import` and `moedsl compile`: the real Bridge resolves every decided field alike.

A decided field that differs is in `ALIKE`, which says why it changes nothing, or it is in `OTHERWISE`, and the program has
a comment on it. A run takes one recipe of each of twelve models; `make test-all` takes all.
"""

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from moedsl.bridge import recipe_import
from moedsl.bridge.recipe_import import Draft
from moedsl.bridge.verify import cases
from moedsl.bridge.verify.cases import Case, devices
from moedsl.bridge.verify.client import Server
from moedsl.bridge.verify.resolve import Resolved
from moedsl.compiler import compile_source, load_stdlib
from moedsl.emit.artifact import files_of
from moedsl.emit.settings import decided_fields
from moedsl.facts.values import stages
from moedsl.support.files import write_all
from moedsl.support.source import Source
from tests.helpers import rotation
from tests.helpers.paths import DATA
from tests.helpers.tables import table_of
from tests.stdlib.test_recipes import IN_TRAINING, LATE, REFUSED, REFUSED_OTHERWISE

pytestmark = pytest.mark.bridge

Fields = Mapping[str, Any]
LETTERS = {"embedding": "E", "decoder": "t", "mtp": "m", "loss": "L"}


def off(a: Any, b: Any) -> bool:
    return all(v in (None, False, [], "none") for v in (a, b))


def without(path: str, *values: Any) -> Callable[[Fields, Fields], bool]:
    """Whether another field of both turns this one off."""
    return lambda ours, theirs: all(f.get(path) in values for f in (ours, theirs))


def equal(path: str) -> Callable[[Fields, Fields], bool]:
    """Whether another field, which has the result, is equal."""
    return lambda ours, theirs: ours.get(path) == theirs.get(path) or off(ours.get(path), theirs.get(path))


def pattern(fields: Fields) -> str:
    return fields["model.hybrid_layer_pattern"].partition("/")[0].replace("|", "")


ALIKE: Mapping[str, tuple[Callable[[Fields, Fields], bool], str]] = {
    "comm_overlap.overlap_grad_reduce": (lambda *_: True, "ddp has the result, and is compared"),
    "comm_overlap.overlap_param_gather": (lambda *_: True, "ddp has the result, and is compared"),
    "comm_overlap.tp_comm_overlap": (equal("model.tp_comm_overlap"), "off with TP 1: the model has the result"),
    "ddp.data_parallel_sharding_strategy": (without("ddp.use_megatron_fsdp", False, None), "read with FSDP only"),
    "model.recompute_modules": (without("model.recompute_granularity", None, "full"), "read with selective recompute"),
    "model.moe_flex_dispatcher_backend": (
        without("model.moe_token_dispatcher_type", "alltoall"),
        "read with flex only",
    ),
    "model.moe_router_dtype": (
        lambda ours, theirs: (
            ours["model.moe_router_dtype"] is None and theirs["model.moe_router_dtype"] in ("float32", "bf16")
        ),
        "a word that Megatron does not know is none (core transformer/moe/router.py:104)",
    ),
    "model.hybrid_layer_pattern": (lambda a, b: pattern(a) == pattern(b), "the same layers, with bars between stages"),
}
"""Fields that may differ, with a condition and the reason."""

UNPADDED = "a plan pads no sample that its layout does not split"
OTHERWISE: Mapping[str, Mapping[str, str]] = table_of("recipes", "otherwise")
"""The fields of a recipe that a program comments on, each with its reason."""

ROWS: list[dict[str, Any]] = [
    row
    for line in (DATA / "recipe_layouts.jsonl").read_text(encoding="utf-8").splitlines()
    for row in [json.loads(line)]
    if row["hardware"] in devices() and f"{row['gpus']}gpu" in row["function"]
]
"""Every recipe of the wheel whose model the stdlib declares, once: a name without its GPUs is another name of one."""
BROKEN: Mapping[str, list[str]] = {n.partition("-")[2]: laws for n, laws in (LATE | IN_TRAINING).items()} | {
    "moonlight_16b_sft_8gpu_h100_bf16_tp1_config": ["packed_samples.no_ep_overlap"]  # a law on the data
}
UNBUILT = {n.partition("-")[2] for n in (*REFUSED, *REFUSED_OTHERWISE)}
"""What Megatron refuses late, and what Bridge refuses."""


def drafted(rows: list[dict[str, Any]], server: Server) -> dict[str, tuple[dict[str, Any], Resolved, Draft]]:
    """Each recipe that Bridge builds and accepts, as a program of words alone."""
    targets = [f"megatron.bridge.{row['module']}:{row['function']}" for row in rows]
    asked = [cases.read(t, row["hardware"], row["gpus"]) for t, row in zip(targets, rows, strict=True)]
    assert all(isinstance(c, Case) for c in asked)
    library, out = load_stdlib(), dict[str, Any]()
    for c, row, theirs in zip(asked, rows, server.resolve(asked), strict=True):  # type: ignore[arg-type]
        assert isinstance(c, Case)
        if theirs.built and theirs.refusal is None:
            r = recipe_import.of_bridge(c, theirs, library)
            draft = recipe_import.draft(r, library)  # type: ignore[arg-type]
            assert isinstance(draft, Draft), (c.file, draft)
            out[c.file] = row, theirs, draft
    return out


def differing(row: Mapping[str, Any], decided: Fields, ours: Fields, theirs: Fields) -> set[str]:
    """The decided fields that differ, except those that change nothing."""
    out: set[str] = set()
    for path in decided:
        a, b = ours.get(path), theirs.get(path)
        words = isinstance(a, list) and isinstance(b, list) and all(isinstance(v, str) for v in (*a, *b))
        folder = isinstance(a, str) and str(b).endswith(f"/{a}")  # relative to where the recipe is built
        if a == b or off(a, b) or folder or (words and sorted(a) == sorted(b)):
            continue
        if path == "model.pipeline_model_parallel_layout":
            alike = same_stages(row, a, theirs)
        else:
            alike = path in ALIKE and ALIKE[path][0](ours, theirs)
        out |= set() if alike else {path}
    return out


TAKEN = rotation.some("imported", rotation.one_of_each("imported recipes", ROWS, lambda row: row["model"]), 1)


def said(law: str) -> str:
    """The start of the comment on what refuses a layout: a law, or the checker."""
    return f"#   the layout, which {'is refused' if law.startswith('check.') else f'std.{law} refuses'}: "


def same_stages(row: Mapping[str, Any], ours: list[list[str]], theirs: Fields) -> bool:
    """Whether a plan's layout is what the other fields of the recipe amount to, or what makes it one that Megatron
    accepts: without a layout, layers must divide (core transformer/transformer_block.py:117)."""
    text = row.get("pipeline_layout")
    if text is None:
        return theirs["model.num_layers"] % (row.get("pp", 1) * row.get("vpp", 1)) != 0
    return ["".join(LETTERS[x] for x in chunk) for chunk in ours] == stages(text)


@pytest.mark.parametrize("model", sorted({row["model"] for row in TAKEN}))
def test_recipes_come_back(model: str, server: Server, tmp_path: Path) -> None:
    rows = [row for row in TAKEN if row["model"] == model]
    drafts = drafted(rows, server)
    names = {name: name.partition(":")[2] for name in drafts}
    assert {row["function"] for row in rows} - {*names.values()} <= UNBUILT
    refused = {name for name, (_, _, d) in drafts.items() if d.result.failed}
    assert {names[name] for name in refused} == {*names.values()} & {*BROKEN}
    for name in refused:
        text = recipe_import.refused(drafts[name][2]).text or ""
        assert all(said(law) in text for law in BROKEN[names[name]]), text
    legal = {name: d for name, (_, _, d) in drafts.items() if name not in refused}
    answers = server.resolve([recipe_import.written(d, tmp_path / f"words{i}") for i, d in enumerate(legal.values())])
    programs = {name: recipe_import.finished(d, r).text for (name, d), r in zip(legal.items(), answers, strict=True)}
    results = {name: compile_source(Source("recipe.moe", text or "")) for name, text in programs.items()}
    assert {name: r.diagnostics for name, r in results.items() if r.failed} == {}
    folders = {name: tmp_path / f"program{i}" for i, name in enumerate(results)}
    for name, r in results.items():
        assert not write_all(folders[name], files_of(r.plans[0], r.source, r.library))
    again = server.resolve([c for f in folders.values() for c in [cases.read(str(f))] if isinstance(c, Case)])
    found: dict[str, set[str]] = {}
    for (name, r), ours in zip(results.items(), again, strict=True):
        assert ours.refusal is None and ours.built, (name, ours.refusal, ours.message)
        row, theirs, _ = drafts[name]
        found[names[name]] = differing(row, decided_fields(r.plans[0]), ours.resolved, theirs.resolved)
        assert {p for p in found[names[name]] if f"\n#   {p} = " not in (programs[name] or "")} == set()
        env = {n: str(v) for n, v in ours.resolved["env_vars"].items()}
        assert {n: v for n, v in drafts[name][2].recipe.env.items() if env.get(n) != str(v)} == {}
    print(f"{model}: {len(drafts)} of {len(rows)} built, {len(refused)} break a law, {len(results)} came back")
    assert {n: d for n, d in found.items() if d} == {n: {*OTHERWISE[n]} for n in OTHERWISE if n in found}
