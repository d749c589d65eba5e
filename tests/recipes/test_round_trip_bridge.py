"""NVIDIA's recipes through `moedsl import` and `moedsl compile`: the real Bridge resolves every decided field alike.

A decided field that differs is in `ALIKE`, which says why it changes nothing, or the program has a comment on it, and it
is in `UNSAID`. A run takes one recipe of each model; `make test-all` takes all.
"""

from __future__ import annotations

import fnmatch
import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from moedsl.compiler import compile_source, load_stdlib
from moedsl.diagnostics.source import Source
from moedsl.emit.artifact import files_of
from moedsl.emit.fields import decided_fields
from moedsl.megatron.values import stages
from moedsl.recipes import importing
from moedsl.recipes.importing import Draft
from moedsl.support.owned_files import write_all
from moedsl.verify import case as cases
from moedsl.verify.case import Case
from moedsl.verify.client import Server
from moedsl.verify.gpu import DEVICES
from moedsl.verify.resolve import Resolved
from tests.helpers import rotation
from tests.helpers.paths import DATA

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
    "model.hybrid_layer_pattern": (lambda a, b: pattern(a) == pattern(b), "the same layers, with bars between stages"),
}
"""Fields that may differ, with a condition and the reason."""

UNSAID: Mapping[str, str] = {
    "ddp.overlap_*": "a plan overlaps data parallelism, and its estimate says so",
    "ddp.average_in_collective": "with masked tokens under context parallelism Bridge refuses it",
    "*.use_distributed_optimizer": "a plan shards the optimizer's state, and its estimate says so",
    "optimizer.optimizer": "Muon: the language has Adam alone",
    "optimizer.main_*_dtype": "other formats of gradients and weights than `grad_reduce` and `moments` make",
    "optimizer.use_precision_aware_optimizer": "an implementation that changes memory with other formats alone",
    "*.grad_reduce_in_fp32": "the two sections contradict each other",
    "*.fp?_param_gather": "weights kept in BF16, for which the estimate has no number",
    "mixed_precision.reuse_grad_buf_for_mxfp8_param_ag": "with weights in MXFP8",
    "tokenizer.use_tokenizer_vocab_size": "a plan has the vocabulary of the model",
    "model.moe_router_dtype": "`float32` and `bf16` are no words of Bridge's annotation",
    "model.use_te_rng_tracker": "graphs need it",
    "rng.te_rng_tracker": "graphs need it",
    "model.cuda_graph_impl": "an implementation that captures nothing",
    "model.moe_flex_dispatcher_backend": "ncclep is no word of the language",
    "model.moe_expert_rank_capacity_factor": "the budget of a captured iteration, which the estimate has as 1.5",
    "model.moe_paged_stash_buffer_size_factor_cuda": "the stash of a captured iteration, which the estimate has as 1.2",
    "model.*offload*": "`fused_group_mlp` is no word of the language",
    "model.recompute_granularity": "selective, of no module",
    "checkpoint.ckpt_format": "FSDP needs its own format",
}
"""Fields that a program comments on, as patterns, each with its reason."""

REFUSED = {
    "std.vision.no_ep_overlap",
    "std.vision.no_vpp",
    "std.mesh.expert_mesh",
    "std.mesh.layers",
    "std.cuda_graph.whole_graph_dispatcher",
}
"""Laws that recipes break. `tests/stdlib/test_laws_late_bridge.py` asks Bridge about them."""

ROWS: list[dict[str, Any]] = [
    row
    for line in (DATA / "recipe_layouts.jsonl").read_text(encoding="utf-8").splitlines()
    for row in [json.loads(line)]
    if row["hardware"] in DEVICES and f"{row['gpus']}gpu" in row["function"]
]
"""Every recipe of the wheel whose model the stdlib declares, once: a name without its GPUs is another name of one."""


def drafted(rows: list[dict[str, Any]], server: Server) -> dict[str, tuple[dict[str, Any], Resolved, Draft]]:
    """Each recipe that Bridge builds and accepts, as a program of words alone."""
    targets = [f"megatron.bridge.{row['module']}:{row['function']}" for row in rows]
    asked = [cases.read(t, row["hardware"], row["gpus"]) for t, row in zip(targets, rows, strict=True)]
    assert all(isinstance(c, Case) for c in asked)
    library, out = load_stdlib(), dict[str, Any]()
    for c, row, theirs in zip(asked, rows, server.resolve(asked), strict=True):  # type: ignore[arg-type]
        assert isinstance(c, Case)
        if theirs.built and theirs.refusal is None:
            r = importing.of_bridge(c, theirs, library)
            draft = importing.draft(r, library)  # type: ignore[arg-type]
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


TAKEN = rotation.one_of_each("imported recipes", ROWS, lambda row: row["model"])


def same_stages(row: Mapping[str, Any], ours: list[list[str]], theirs: Fields) -> bool:
    """Whether a plan's layout is what the other fields of the recipe amount to, or what makes it one that Megatron
    accepts: without a layout, layers must divide (core transformer/transformer_block.py:117)."""
    text = row.get("pipeline_layout")
    if text is None:
        return theirs["model.num_layers"] % (row.get("pp", 1) * row.get("vpp", 1)) != 0
    return ["".join(LETTERS[x] for x in chunk) for chunk in ours] == stages(text)


@pytest.mark.parametrize("model", sorted({row["model"] for row in ROWS}))
def test_recipes_come_back(model: str, server: Server, tmp_path: Path) -> None:
    rows = [row for row in TAKEN if row["model"] == model]
    drafts = drafted(rows, server)
    refused = {name: d.result.diagnostics for name, (_, _, d) in drafts.items() if d.result.failed}
    assert all({x.id for x in found if x.is_error} <= REFUSED for found in refused.values()), refused
    legal = {name: d for name, (_, _, d) in drafts.items() if name not in refused}
    answers = server.resolve([importing.written(d, tmp_path / f"words{i}") for i, d in enumerate(legal.values())])
    programs = {
        name: importing.finished(d, importing.answered(r)).text
        for (name, d), r in zip(legal.items(), answers, strict=True)
    }
    results = {name: compile_source(Source("recipe.moe", text or "")) for name, text in programs.items()}
    assert {name: r.diagnostics for name, r in results.items() if r.failed} == {}
    folders = {name: tmp_path / f"program{i}" for i, name in enumerate(results)}
    for name, r in results.items():
        assert not write_all(folders[name], files_of(r.plans[0], r.source, r.library))
    again = server.resolve([c for f in folders.values() for c in [cases.read(str(f))] if isinstance(c, Case)])
    wrong: dict[str, Any] = {}
    for (name, r), ours in zip(results.items(), again, strict=True):
        assert ours.refusal is None and ours.built, (name, ours.refusal, ours.message)
        row, theirs, _ = drafts[name]
        comments = {line.split(" = ")[0] for line in (programs[name] or "").splitlines()}
        found = differing(row, decided_fields(r.plans[0]), ours.resolved, theirs.resolved)
        unsaid = {p for p in found if any(fnmatch.fnmatchcase(p, u) for u in UNSAID)}
        silent = {p for p in found if f"#   {p}" not in comments}
        wrong |= {name: {"not reviewed": found - unsaid, "no comment": silent}} if found - unsaid or silent else {}
    print(f"{model}: {len(drafts)} of {len(rows)} built, {len(refused)} break a law, {len(results)} came back")
    assert wrong == {}
