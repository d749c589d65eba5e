"""What `moedsl lint` says of every MoE recipe of the megatron-bridge 0.6.2 wheel: no more and no less than is noted.

`recipe_fields.jsonl` has the 476 recipes as Bridge builds them (extract_recipe_fields.py), `lint_findings.json` the
recipes that each law, each warning and Bridge itself find something in. docs/lint.md has the reason of each.
"""

import json
from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import Any

import pytest
from attrs import evolve

from moedsl.bridge.lint import facts, rules
from moedsl.bridge.lint.facts import Recipe, stdlib_facts
from moedsl.bridge.lint.report import severity
from moedsl.bridge.lint.run import PHASE, from_bridge, machine
from moedsl.bridge.verify import cases
from moedsl.bridge.verify.cases import Case
from moedsl.bridge.verify.client import Server
from moedsl.compiler import load_stdlib
from moedsl.facts.fields import checked, unknown_word
from tests.helpers.paths import DATA, ROOT
from tests.helpers.tables import table_of

DOCS = ROOT / "docs"
EXPECTED: dict[str, list[str]] = json.loads((DATA / "lint_findings.json").read_text(encoding="utf-8"))
LATE = table_of("lint", "recipes: late")
"""Laws broken by recipes that `runtime_config_update` accepts, and the line that refuses them behind it, or trains
something else."""


@lru_cache
def recipes() -> dict[str, tuple[dict[str, Any], Recipe]]:
    """Each recipe of the wheel by kind and function: its row, and as lint sees it."""
    library = load_stdlib()
    values, *rows = (DATA / "recipe_fields.jsonl").read_text(encoding="utf-8").splitlines()
    known = json.loads(values)
    return {f"{r['kind']}-{r['function']}": (r, recipe(r, known, library)) for r in map(json.loads, rows)}


def recipe(row: Mapping[str, Any], known: Mapping[str, list[Any]], library: Any) -> Recipe:
    numbers = row.get("fields") or []
    fields = {n: v[i] for (n, v), i in zip(known.items(), numbers, strict=bool(numbers))}
    fields = {n: v for n, v in fields.items() if v is not None}
    hardware, _ = library.gpu(row["hardware"])
    said = {"model.moe_flex_dispatcher_backend": (("recipe.py", 1),)} if row.get("backend_said") else {}
    return Recipe(
        target=row["function"], function=row["function"], file="recipe.py", line=1, fields=fields, hardware=hardware,
        world=row["gpus"], settled={"model.sequence_parallel": row.get("sequence_parallel", False)},
        classes=row.get("classes", {}), places=said, asked=row.get("asked"), whole=bool(fields),
        model=stdlib_facts(fields.get("model.hf_model_id"), library), unknown=dict.fromkeys(row.get("unknown", ())),
    )  # fmt: skip


def found(name: str) -> Iterator[tuple[str, str]]:
    """(id, severity) of each finding in one recipe, as report.py makes them."""
    row, r = recipes()[name]
    if row.get("refused"):
        yield "lint.refused", "error"
    if r.fields:
        yield from ((f.rule.id, severity(f.rule)) for f in rules.judge(r, book(), PHASE).findings)
        yield from (("lint.unknown_field", "warning") for _ in [*r.unknown][:1])
        wrong = [n for n, v in r.fields.items() if unknown_word(n, v)]
        yield from [("lint.unknown_word", "warning")] * any(n not in checked() for n in wrong)
        yield from [("lint.refused_word", "error")] * any(n in checked() for n in wrong)


@lru_cache
def book() -> rules.Book:
    return rules.read_rules(load_stdlib())[0]


@lru_cache
def every_finding() -> list[tuple[str, str, str]]:
    """The recipe, the id and the severity of each."""
    return [(name, id, kind) for name in recipes() for id, kind in found(name)]


def findings(*kinds: str) -> dict[str, list[str]]:
    """The recipes that findings of some severities are about, by id."""
    out: dict[str, list[str]] = {}
    for name, id, kind in every_finding():
        if kind in kinds:
            out.setdefault(id, []).append(name)
    return out


OF_HYBRIDS = (
    "layer_pattern", "mamba_heads", "mamba_head_dim", "mamba_state", "mamba_groups", "moe_latent", "gated", "hybrid",
    "position_embedding_type", "layers", "dense_layers", "experts", "topk", "shared_expert_hidden",
)  # fmt: skip
DECLARED = {"nvidia/NVIDIA-Nemotron-3-Super-120B-A12B-BF16": 17, "nvidia/NVIDIA-Nemotron-3-Ultra-550B-A55B-BF16": 8}


def test_a_recipe_of_a_hybrid_says_the_facts_of_its_model() -> None:
    """Out of its fields alone; NVIDIA's recipes train two depths of MTP."""
    library, seen = load_stdlib(), dict.fromkeys(DECLARED, 0)
    for _, r in recipes().values():
        hf = r.get("model.hf_model_id")
        read = facts.model_facts(evolve(r, model=None))
        if hf in DECLARED:
            declared = stdlib_facts(hf, library)
            assert declared is not None
            assert {n: read[n] for n in OF_HYBRIDS} == {n: declared[n] for n in OF_HYBRIDS}
            assert (read["mtp_layers"], read["mtp_pattern"], read["mtp_repeated"]) == (2, "*E", True)
            seen[hf] += 1
        elif r.fields and not r.get("model.hybrid_layer_pattern"):
            assert not any(read[n] for n in ("hybrid", "layer_pattern", "mtp_pattern", "mamba_heads", "mamba_groups"))
    assert seen == DECLARED


OF_DELTA_NETS = (
    "linear_every", "linear_key_heads", "linear_value_heads", "linear_key_dim", "linear_value_dim", "attention_gate",
    "qk_norm", "shared_expert_gate", "shared_expert_hidden", "layers", "experts", "topk", "heads", "query_groups",
    "head_dim", "attention", "dense_layers", "position_embedding_type", "has_vision",
)  # fmt: skip
LINEAR = {
    "Qwen/Qwen3-Next-80B-A3B-Instruct": 14,
    "Qwen/Qwen3.5-35B-A3B": 23,
    "Qwen/Qwen3.5-122B-A10B": 21,
    "Qwen/Qwen3.5-397B-A17B": 21,
}


def test_a_recipe_with_delta_nets_says_the_facts_of_its_model() -> None:
    """Out of its fields alone; Bridge lists the layers in place of an interval. Two recipes have the language model of
    a VLM by itself."""
    library, seen = load_stdlib(), dict.fromkeys(LINEAR, 0)
    for name, (_, r) in recipes().items():
        hf = r.get("model.hf_model_id")
        read = facts.model_facts(evolve(r, model=None))
        if hf in LINEAR and "qwen35_text" not in name:
            declared = stdlib_facts(hf, library)
            assert declared is not None and isinstance(r.get("model.linear_attention_freq"), list)
            assert {n: read[n] for n in OF_DELTA_NETS} == {n: declared[n] for n in OF_DELTA_NETS}
            without = hf.endswith("Instruct") and "_sft_" in name
            assert read["mtp_layers"] == (0 if without else declared["mtp_layers"])
            seen[hf] += 1
        elif r.fields and hf not in LINEAR:
            assert not any(read[n] for n in OF_DELTA_NETS[:5]), name
    assert seen == LINEAR


@pytest.mark.parametrize(
    ("said", "every"),
    [
        (4, 4),
        ([1, 1, 0, 1, 1, 0], 3),
        ([1, 0, 1, 0, 1], 2),
        ([0, 1, 1, 1], None),
        ([1, 1, 0, 1], 3),
        ([1, 1], None),
        ([0, 0], 0),
        (1, 0),
    ],
)
def test_full_attention_is_counted_or_listed(said: Any, every: int | None) -> None:
    """As core models/gpt/experimental_attention_variant_module_specs.py:408-420; a list without a period is unknown."""
    _, r = recipes()["perf-qwen3_next_80b_a3b_pretrain_64gpu_b200_bf16_config"]
    other = evolve(r, fields={**r.fields, "model.linear_attention_freq": said}, model=None)
    assert facts.model_facts(other).get("linear_every") == every
    plain = {**other.fields, "model.experimental_attention_variant": None}
    assert facts.model_facts(evolve(other, fields=plain))["linear_every"] == 0


def test_laws_of_mamba_layers_judge_a_recipe() -> None:
    """8 groups do not fall on 16 tensor-parallel ranks; NVIDIA's own recipe breaks no law."""
    _, r = recipes()["perf-nemotron_3_super_pretrain_64gpu_gb200_bf16_config"]
    wide = evolve(r, fields={**r.fields, "model.tensor_model_parallel_size": 16}, model=None)
    broken = lambda r: {f.rule.name for f in rules.judge(r, book(), PHASE).findings if f.rule.kind == "require"}  # noqa: E731
    assert broken(r) == set()
    assert "mamba_groups" in broken(wide)


def test_laws_of_delta_nets_judge_a_recipe() -> None:
    """16 heads of keys do not fall on 4 x 8 ranks; NVIDIA's own recipe breaks no law of its own."""
    _, r = recipes()["perf-qwen3_next_80b_a3b_pretrain_64gpu_b200_bf16_config"]
    sizes = {"model.tensor_model_parallel_size": 4, "model.context_parallel_size": 8}
    wide = evolve(r, fields={**r.fields, **sizes}, model=None)
    broken = lambda r: {f.rule.id for f in rules.judge(r, book(), PHASE).findings if f.rule.kind == "require"}  # noqa: E731
    assert broken(r) == set()
    assert "std.delta_net.heads" in broken(wide)


@pytest.mark.parametrize(
    ("said", "id"),
    [
        (["aux_loss", "aux_loss"], None),
        (["aux-loss", "aux-loss"], "std.recipe_router.known_balancing"),
        (["aux_loss", "global_aux_loss"], None),
        ("noaux_tc", "std.recipe_router.known_balancing"),
    ],
)
def test_a_text_field_may_be_a_list(said: Any, id: str | None) -> None:
    """Of one word it is that word; of several words the rule cannot be evaluated."""
    _, r = recipes()["perf-qwen3_next_80b_a3b_pretrain_64gpu_b200_bf16_config"]
    book, _ = rules.read_rules(load_stdlib())
    weights = [1e-3] * len(said) if isinstance(said, list) else 1e-3
    fields = {"model.moe_router_load_balancing_type": said, "model.moe_aux_loss_coeff": weights}
    other = evolve(r, fields={**r.fields, **fields})
    verdict = rules.judge(other, book, PHASE)
    of_router = {f.rule.id for f in verdict.findings if ".recipe_router." in f.rule.id}
    assert of_router == ({id} if id else set())
    several = isinstance(said, list) and len({*said}) > 1
    assert ("std.recipe_router.known_balancing" in verdict.unjudged) == several


def test_every_recipe_is_there() -> None:
    assert len(recipes()) == 476
    assert sum(bool(r.fields) for _, r in recipes().values()) == 449


def test_the_findings_are_those_that_are_noted() -> None:
    assert findings("error", "warning") == EXPECTED


def test_an_error_is_one_that_nvidia_s_code_makes_too() -> None:
    """A law that a recipe breaks is refused by Bridge's update, or is in LATE."""
    refused = set(EXPECTED["lint.refused"])
    assert {id for id, names in findings("error").items() if set(names) - refused} == LATE.keys()


@pytest.mark.parametrize("id", EXPECTED)
def test_a_finding_is_explained_in_the_docs(id: str) -> None:
    text = (DOCS / "lint.md").read_text(encoding="utf-8")
    assert f"| `{id}` | {len(EXPECTED[id])} |" in text


SAMPLE = table_of("lint", "recipes: sample")


@pytest.mark.bridge
def test_the_table_is_what_bridge_builds(server: Server) -> None:
    library = load_stdlib()
    read = [c for c in map(cases.read, SAMPLE) if isinstance(c, Case)]
    for c, resolved in zip(read, server.resolve(read), strict=True):
        hardware = machine(c, library)
        assert hardware is not None and resolved.built, (c.file, resolved.refusal, resolved.message)
        real = rules.judge(from_bridge(c, resolved, hardware, library), book(), PHASE)
        kind = "perf" if "perf_recipes" in c.source else "library"
        mine = rules.judge(recipes()[f"{kind}-{c.function}"][1], book(), PHASE)
        assert [f.rule.id for f in mine.findings] == [f.rule.id for f in real.findings]
        assert mine.judged == real.judged
