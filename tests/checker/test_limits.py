"""Programs that are large in one direction: each is answered, or refused by what is too large in it."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from attrs import evolve

from moedsl.compiler import compile_source, load_stdlib
from moedsl.cost import pipeline
from moedsl.lang import ast
from moedsl.rules.check import run_draft
from moedsl.solver import nearest, space
from moedsl.solver.laws import compile_problem
from moedsl.solver.problem import lower
from moedsl.solver.solve import make_cost
from moedsl.support.resources import stdlib_dir
from moedsl.support.source import Source
from tests.helpers.programs import compiled

WHY = 'because "why" cite ours "why"'
RUN = "model qwen3_30b_a3b; h100 x 64; fit first\n"


def rules(*lets: str) -> str:
    return RUN + "rules r {\n" + "".join(f"let {line}\n" for line in lets) + "}\n"


def model(name: str, *facts: tuple[str, str]) -> str:
    text = (stdlib_dir() / "models" / f"{name}.moe").read_text().replace(f"model {name}", "model big", 1)
    for old, new in facts:
        text = re.sub(old, new, text, count=1)
    return text + "\nmodel big; h100 x 64; fit first\n"


def ids(text: str) -> list[str]:
    return [d.id for d in compiled(text).diagnostics if d.is_error]


@pytest.mark.parametrize(
    "text, says",
    [
        (model("qwen3_30b_a3b", (r"experts 128", "mtp_layers 100000 experts 128")), "100 MTP layers"),
        (
            model("nemotron_3_nano", (r'layer_pattern "\S+"', f'layer_pattern "{"ME" * 5000}"'), (r"layers \d+", "layers 10000")),
            "500 is the limit",
        ),
        (model("qwen3_vl_30b_a3b", (r"temporal_patch 2", f"temporal_patch {10**39}")), "temporal_patch"),
        (model("qwen3_vl_30b_a3b", (r"merge 2", "merge 0")), "from 1 to 64"),
        (model("qwen3_vl_30b_a3b", (r"ffn_hidden 4304", f"ffn_hidden {10**18}")), "below 65536"),
    ],
    ids=["mtp", "pattern", "patch", "no merge", "vision"],
)  # fmt: skip
def test_a_fact_that_is_too_large_is_refused_with_its_limit(text: str, says: str) -> None:
    (found,) = (d for d in compiled(text).diagnostics if d.is_error)
    assert found.id == "check.model" and says in found.message


def test_a_huge_last_stage_is_priced() -> None:
    assert ids(f"{RUN}set model.vocab_size = 1000000000\n") == ["solve.does_not_fit"]
    assert ids(f"{RUN}set model.mtp_num_layers = 100\n") == []


@pytest.mark.parametrize(
    "field",
    [
        "model.mtp_num_layers = 101",
        "model.mtp_num_layers = 1e9",
        "model.mtp_num_layers = 1e300",
        "model.vocab_size = 1e300",
        "tokenizer.vocab_size = 3000000000",
        "dataset.num_workers = 1e300",
        "train.train_iters = -1e300",
    ],
)
def test_a_size_that_no_run_has_is_refused(field: str) -> None:
    assert ids(f"{RUN}set {field}\n") == ["check.size"]


def test_a_vocabulary_heavier_than_all_layers_leaves_the_last_stage_none(monkeypatch: pytest.MonkeyPatch) -> None:
    """And the search for the layout takes steps by the layers, not by what the vocabulary weighs."""
    facts = load_stdlib().model("qwen3_30b_a3b")[0]
    assert facts is not None
    given: list[int] = []
    fullest = pipeline._fullest
    monkeypatch.setattr(pipeline, "_fullest", lambda *words: given.append(1) or fullest(*words))
    text = pipeline.balanced(evolve(facts, vocab=2_000_000_000), 4, 2)
    assert len(given) < 3 * facts.layers
    layout, _ = pipeline.parse_layout(str(text), facts, 4, 2)
    assert layout is not None
    assert [sum(c.layers for c in layout.stage(s)) for s in range(4)] == [15, 16, 16, 1]


def test_a_chain_of_lets_is_answered_or_refused() -> None:
    lets = ["a0 = tp", *(f"a{i} = a{i - 1} + 1" for i in range(1, 250))]
    assert ids(rules(*lets)) == ["check.deep_let"]
    assert ids(rules(*lets[:140])) == []


def test_the_tree_of_lets_that_use_each_other_twice_does_not_double() -> None:
    lets = {f"a{i}": ast.Binary("+", *(2 * (ast.Name(f"a{i - 1}", None),)), None) for i in range(1, 17)}  # type: ignore[arg-type]
    env = {f"a{i}": 2**i for i in range(17)}

    def nodes(node: nearest.Json) -> int:
        return 1 + sum(map(nodes, node["parts"]))

    assert nodes(nearest.tree(lets["a16"], env, lets)) < 100


def test_a_sum_that_leaves_64_bits_keeps_its_sign() -> None:
    doubled = "".join(f"let a{i} = a{i - 1} + a{i - 1} {WHY}\n" for i in range(1, 70))
    result = compile_source(
        Source("t.moe", f"{RUN}rules r {{ let a0 = tp {WHY}\n{doubled}require sum: a69 > 0 {WHY} }}\n")
    )
    assert not result.failed
    result = compile_source(
        Source("t.moe", f"{RUN}rules r {{ let a0 = tp {WHY}\n{doubled}require sum: a69 < 0 {WHY} }}\n")
    )
    assert [d.id for d in result.diagnostics if d.is_error] == ["run.r.sum"]


def test_a_file_uses_a_file_that_uses_a_file(tmp_path: Path) -> None:
    for i in range(1500):
        (tmp_path / f"u{i}.moe").write_text(f'use "u{i + 1}.moe"\n')
    (tmp_path / "u1500.moe").write_text("model_of_nothing\n")
    result = compile_source(Source(str(tmp_path / "run.moe"), f'use "u0.moe"\n{RUN}'), "check")
    assert len(result.library.sources) > 1500


def test_a_run_from_a_run_from_a_run(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each run is read once, not again for each that inherits from it."""
    read: list[int] = []
    layer = run_draft.Gather.layer

    def counted(self: run_draft.Gather, *words: Any) -> run_draft.Draft:
        read.append(1)
        assert len(read) < 2100
        return layer(self, *words)

    monkeypatch.setattr(run_draft.Gather, "layer", counted)
    runs = "".join(f"run r{i} from r{i - 1} {{ seq 8k }}\n" for i in range(1, 2000))
    result = compile_source(Source("t.moe", f"run r0 {{ {RUN} }}\n{runs}"), "check")
    assert len(result.programs) == 2000 and not result.failed
    circle = compile_source(Source("t.moe", "run a from b { }\nrun b from a { }\n"), "check")
    assert [d.id for d in circle.diagnostics if d.id == "check.circular"] == ["check.circular"]


def test_the_meshes_are_the_same_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    (program,) = compiled(RUN, "t.moe").programs
    problem = lower(program, 64)
    compiled_problem = compile_problem(problem, {"has_layout": make_cost(problem).has_layout})
    whole = space.mesh_table(compiled_problem)
    monkeypatch.setattr(space, "MOST", 50)
    parts = space.mesh_table(compiled_problem)
    assert whole.rows > 50 and all((whole.axes[n] == parts.axes[n]).all() for n in whole.axes)
