"""NVIDIA's recipes for adapters through `moedsl import` and `moedsl compile`: the real Bridge makes the same adapter of
each, and resolves every decided field alike, or the program has a comment on it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from moedsl.compiler import compile_source, load_stdlib
from moedsl.diagnostics.source import Source
from moedsl.emit.artifact import files_of
from moedsl.recipes import importing
from moedsl.recipes.importing import Draft
from moedsl.support.owned_files import write_all
from moedsl.verify import case as cases
from moedsl.verify.case import Case
from moedsl.verify.client import Server
from tests.helpers import rotation
from tools import make_recipes

pytestmark = pytest.mark.bridge

TABLE = [json.loads(line) for line in make_recipes.FILE.read_text(encoding="utf-8").splitlines()]
ADAPTERS = [row for row in TABLE if row["task"] == "peft"]
TAKEN = rotation.some("adapted", rotation.one_of_each("imported adapters", ADAPTERS, lambda row: row["hf"]), 3)
REFUSED = {"gpt_oss_20b_peft_1gpu_h100_fp8mx_config": "std.precision.mxfp8_gpu"}
"""Accepted until the first step: te/pytorch/quantization.py:168 asks the GPU, and an H100 has no MXFP8."""


def of_peft(fields: Any) -> dict[str, Any]:
    return {n: v for n, v in fields.items() if n.startswith("peft.") and n != "peft.params_to_save"}


def test_there_are_many() -> None:
    assert len(ADAPTERS) >= 19


@pytest.mark.parametrize("row", TAKEN, ids=lambda row: row["name"])
def test_the_adapter_comes_back(row: dict[str, Any], server: Server, tmp_path: Path) -> None:
    asked = cases.read(f"{row['module']}:{row['name']}", row["hardware"], row["gpus"])
    assert isinstance(asked, Case)
    (theirs,) = server.resolve([asked])
    assert theirs.built and theirs.refusal is None, theirs.refusal
    library = load_stdlib()
    draft = importing.draft(importing.of_bridge(asked, theirs, library), library)  # type: ignore[arg-type]
    assert isinstance(draft, Draft)
    laws = {d.id for d in draft.result.diagnostics if d.is_error}
    assert laws == ({REFUSED[row["name"]]} if row["name"] in REFUSED else set())
    if laws:
        text = importing.finished(draft, None).text or ""
        assert f"#   the layout, which {REFUSED[row['name']]} refuses: " in text
        return
    (answer,) = server.resolve([importing.written(draft, tmp_path / "words")])
    text = importing.finished(draft, importing.answered(answer)).text or ""
    result = compile_source(Source("recipe.moe", text + '\nset checkpoint.pretrained_checkpoint = "/weights"\n'))
    assert not result.failed, [d.message for d in result.diagnostics if d.is_error]
    assert not write_all(tmp_path / "program", files_of(result.plans[0], result.source, result.library))
    again = cases.read(str(tmp_path / "program"))
    assert isinstance(again, Case)
    (ours,) = server.resolve([again])
    assert ours.built and ours.refusal is None, ours.refusal
    assert ours.classes["peft"] == theirs.classes["peft"]
    a, b = of_peft(ours.resolved), of_peft(theirs.resolved)
    assert {n for n in b if in_order(a.get(n)) != in_order(b[n])} == set()


def in_order(value: Any) -> Any:
    return sorted(value) if isinstance(value, list) else value
