"""What `moedsl compile` writes has nothing that `moedsl lint` would call an error or warn of."""

from __future__ import annotations

from pathlib import Path

import pytest

from moedsl.bridge.lint import rules, run
from moedsl.bridge.verify import cases
from moedsl.bridge.verify.cases import Case
from moedsl.bridge.verify.client import Server
from moedsl.compiler import compile_source, load_stdlib
from moedsl.emit.artifact import files_of
from moedsl.lang import reader
from moedsl.support.files import write_all
from tests.helpers import rotation
from tests.helpers.paths import example_path

EVERY = ("qwen3_235b_gb200_128k", "deepseek_v3_h100", "ep_overlap", "gpt_oss_120b", "sft", "fsdp_vlm", "vlm_gb200_3d")
NAMES = rotation.some("emitted", EVERY, 3)


@pytest.mark.bridge
def test_emitted_recipes_are_clean(server: Server, tmp_path: Path) -> None:
    wanted: list[Case] = []
    for name in NAMES:
        source, _ = reader.read(str(example_path(name)))
        assert source is not None
        result = compile_source(source)
        assert result.plans, name
        write_all(tmp_path / name, files_of(result.plans[0], source, result.library))
        read = cases.read(str(tmp_path / name))
        assert isinstance(read, Case)
        wanted.append(read)
    library = load_stdlib()
    book, _ = rules.read_rules(library)
    found = [run.one(c, r, book, library) for c, r in zip(wanted, server.resolve(wanted), strict=True)]
    assert all(x.judged > 60 for x in found)
    said = {
        x.file: [(d.id, dict(d.values)) for d in (*x.diagnostics, *x.inherited) if d.severity != "note"] for x in found
    }
    assert said == {str(tmp_path / name): [] for name in NAMES}
