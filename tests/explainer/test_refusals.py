"""A refusal looks at few rows: it shares what the tried sizes have in common, and judges the cheapest laws first."""

import math
import re
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from moedsl.cli.main import main
from moedsl.cli.reference.page import page, words
from moedsl.compiler import compile_source, load_stdlib
from moedsl.cost import estimate
from moedsl.facts import axes
from moedsl.facts.machines import gpu_counts as counts
from moedsl.planner.text import SECTIONS
from moedsl.planner.walls import KINDS
from moedsl.solver import fits
from moedsl.solver.bounded_space import LEAST_TIME
from moedsl.solver.conflicts import legal_on
from moedsl.solver.fits import GAIN, fast_enough, layouts
from moedsl.solver.laws import Table
from moedsl.solver.problem import facts
from moedsl.solver.search import Search
from moedsl.solver.solve import solve
from moedsl.support.source import Source
from tests.helpers import rotation
from tests.helpers.paths import ROOT
from tests.helpers.small_programs import WHY, program
from tests.helpers.tables import table_of

OVERLAP = f"candidates ep_overlap = [false, true] {WHY}"
CASES = [
    ("qwen3_30b_a3b; b200 x 55440; seq 128; batch 1; throughput first; precision mxfp8", 3_000_000),
    (
        "glm45_355b; h100 x 55440; scale first; seq 1M; batch 1; prefer spare_memory > 20 GB\n"
        f"rules r {{ candidates micro_batch = [8, 4, 17, 9] {WHY}\n candidates delay_wgrad = [false, true] {WHY} }}",
        20_000_000,
    ),
    (
        "kimi_k2; h200_nvl x 55440; scale first; seq 16k; batch 720720; require step_time < 60\n"
        f"rules r {{ candidates tp = [4, 24, 2, 1, 38, 8] {WHY}\n candidates cp = [1, 2, 8, 4, 62, 26] {WHY}\n {OVERLAP} }}",
        1_000_000,
    ),
    ("deepseek_v3; h100 x 2048; throughput first; require step_time < 0.1", 2_000_000),
    ("qwen3_235b_a22b; h100 x 10080; throughput first; seq 1M; batch 720; precision mxfp8; pin delay_wgrad=true", 15_000_000),
    (
        "glm45_355b; gb200 x 10080; fit first; seq 55440; batch 55440\n"
        f"rules r {{ candidates cuda_graph = [[full_iteration], [moe_preprocess]] {WHY}\n"
        f" candidates recompute = [[layernorm], [mlp], [moe_act], [core_attn]] {WHY} }}",
        3_000_000,
    ),
]  # fmt: skip
NAMES = [
    "length and batch", "nearest layout", "time and memory", "time on more GPUs", "precision pin", "policies alone",
]  # fmt: skip
COMBINED = [
    (
        "glm45_355b; h200 x 2520; throughput first; seq 55440; batch 65536; require step_time < 60; pin ep_overlap=true\n"
        f"rules r {{ candidates offload_modules = [none, [mlp_norm], [attn_norm], [moe_act]] {WHY} }}",
        200_000,
    ),
    (
        "deepseek_v3; h100 x 2520; throughput first; seq 5040; batch 720720; pin pp=2\n"
        "prefer big: dispatcher != alltoall and tp == 2\n"
        f"rules r {{ candidates recompute = [none, [layernorm], [core_attn], [moe_act]] {WHY}\n"
        f" candidates offload_modules = [none, [mlp_norm], [attn_norm]] {WHY} }}",
        250_000,
    ),
    (
        "kimi_k25; vr200 x 1024; fit first; seq 5040; batch 65536; precision mxfp8\n"
        f"rules r {{ candidates offload_modules = [none, [mlp_norm], [attn_norm], [moe_act], [core_attn]] {WHY}\n"
        f" candidates recompute = [none, [layernorm], [core_attn], [moe_act]] {WHY} }}",
        200_000,
    ),
]


SLOWEST = table_of("explainer", "refusals: slowest")
"""Refusals that took longest before what they looked at was cut."""


def refused(text: str, methods: Sequence[str], patch: pytest.MonkeyPatch) -> int:
    """The rows that some methods of a table make while a program is refused."""
    rows = 0

    def counting(make: Callable[..., Table]) -> Callable[..., Table]:
        def counted(*args: Any) -> Table:
            nonlocal rows
            table = make(*args)
            rows += table.rows
            return table

        return counted

    for name in methods:
        patch.setattr(Table, name, counting(getattr(Table, name)))
    assert compile_source(Source("run.moe", text), "solve").failed
    return rows


@pytest.mark.parametrize(
    ("text", "most"), [pytest.param(*CASES[i], id=NAMES[i]) for i in rotation.some("rows", range(len(CASES)), 1)]
)
@pytest.mark.usefixtures("compiles_anew")
def test_rows_of_a_refusal(text: str, most: int, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = refused(text, ["grow", "times"], monkeypatch)
    assert rows < most, f"{rows:,}"


PRICED = ("pinned policy", "wish on mesh and policy", "time first")


@pytest.mark.parametrize(
    ("text", "most"), [pytest.param(*COMBINED[i], id=PRICED[i]) for i in rotation.some("priced", range(len(PRICED)), 1)]
)
@pytest.mark.usefixtures("compiles_anew")
def test_layouts_that_a_refusal_prices(text: str, most: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """The rows of meshes with policies: those that a bound, a wish or a law with a pinned value refuses are no rows."""
    rows = refused(text, ["times"], monkeypatch)
    assert rows < most, f"{rows:,}"


BATCH_OF_MORE_GPUS = "glm45_355b; b200 x 4096; throughput first; require step_time < 1"
"""The batch grows with the GPUs, so that each number of them is tried."""


TIMED_ONCE = [(CASES[3][0], 1_000_000), (BATCH_OF_MORE_GPUS, 1_000_000)]


@pytest.mark.parametrize(("text", "most"), [(CASES[1][0], 0), *rotation.some("timed once", TIMED_ONCE, 1)])
@pytest.mark.usefixtures("compiles_anew")
def test_meshes_that_a_refusal_times(text: str, most: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """A space that fits in no case of the memory estimate is not timed, and searches of the same space time it once."""
    rows, time = 0, Search._least_time

    def counted(search: Search, meshes: Table) -> Any:
        nonlocal rows
        rows += 0 if LEAST_TIME in meshes.axes else meshes.rows
        return time(search, meshes)

    monkeypatch.setattr(Search, "_least_time", counted)
    assert compile_source(Source("run.moe", text), "solve").failed
    assert rows <= most, f"{rows:,}"


BOUNDED = [
    ("minimax_m3; h20 x 240; throughput first; require peak_memory < 1 GB", 3_000_000),
    (
        "deepseek_v3; gh200 x 10080; fit first; precision fp8; require spare_memory > 150 GiB\n"
        f"rules r {{ candidates micro_batch = [1, 2, 3, 4, 5, 6, 7, 8] {WHY}\n"
        f" candidates offload_modules = [none, [mlp_norm], [attn_norm], [moe_act], [core_attn]] {WHY} }}",
        2_000_000,
    ),
]


@pytest.mark.parametrize(("text", "most"), rotation.some("bounded", BOUNDED, 1))
@pytest.mark.usefixtures("compiles_anew")
def test_memory_that_a_refusal_bounds(text: str, most: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Meshes with policies: those that cannot hold their weights, or have no such policy, are not bounded."""
    rows, best = 0, Search._best_with

    def counted(search: Search, price: str, table: Table, policies: Any) -> Any:
        nonlocal rows
        rows += table.rows * len(policies)
        return best(search, price, table, policies)

    monkeypatch.setattr(Search, "_best_with", counted)
    assert compile_source(Source("run.moe", text), "solve").failed
    assert rows < most, f"{rows:,}"


OCTAVES = round(math.log2(fits.MOST_TIMES))
ONE_BY_ONE = [
    ("kimi_k25; a800 x 2520; throughput first; seq 128; batch 512; require spare_memory > 100 GiB", 3 * OCTAVES),
    (BOUNDED[0][0], 3 * OCTAVES + 5),
    (
        "qwen3_vl_235b_a22b; gb200 x 8; throughput first; require step_time < 0.5 or peak_memory < 2 GB; pin recompute=full",
        3 * OCTAVES + 5,
    ),
]
"""The second fits in the last octave, and the third on another number without its limit."""
TOO_SLOW = "qwen3_30b_a3b; h800 x 1000; throughput first; seq 64k; batch 1024; precision auto; require step_time < 0.2"


def solved_one_by_one(text: str, patch: pytest.MonkeyPatch) -> set[int]:
    solved, solve_ = set[int](), fits.solve

    def counted(p: Any, gpus: int, **more: Any) -> Any:
        solved.add(gpus)
        return solve_(p, gpus, **more)

    patch.setattr(fits, "solve", counted)
    assert compile_source(Source("run.moe", text), "solve").failed
    return solved


@pytest.mark.usefixtures("compiles_anew")
def test_numbers_of_gpus_that_cannot_be_fast_enough_are_refused_together(monkeypatch: pytest.MonkeyPatch) -> None:
    assert not solved_one_by_one(TOO_SLOW, monkeypatch)


@pytest.mark.parametrize(("text", "most"), rotation.some("one by one", ONE_BY_ONE, 1))
@pytest.mark.usefixtures("compiles_anew")
def test_three_numbers_of_gpus_speak_for_their_octave(text: str, most: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """The other five of an octave are tried only where a layout fits on one of those."""
    assert len(solved_one_by_one(text, monkeypatch)) <= most


NEXT = table_of("explainer", "refusals: next")


@pytest.mark.parametrize("text", rotation.some("next number", NEXT, 1))
def test_the_next_number_of_gpus_is_that_of_a_look_at_each(text: str) -> None:
    p = program(text)
    assert p.gpus
    c = solve(p, p.gpus, keep=0)
    assert not fits.fits(p, p.gpus)
    found = fits.next_that_fits(c)
    numbers = (n for n in counts(p.hardware, above=p.gpus) if n <= fits.MOST_TIMES * p.gpus)
    first = next((n for n in numbers if layouts(solve(p, n, keep=0))), None)
    assert (found and found.problem.gpus) == first


@pytest.mark.parametrize(
    "text",
    rotation.some(
        "on more GPUs", ["qwen3_30b_a3b; h100 x 72; batch 720", "moonlight_16b; gb200 x 56; throughput first"], 1
    ),
)
def test_a_gpu_is_not_much_faster_in_a_run_on_more(text: str) -> None:
    p = program(text)
    assert p.gpus

    def rate(gpus: int) -> float:
        c = solve(p, gpus, keep=0)
        return float(c.cost.tokens_per_second_per_gpu(c.search.least_seconds)) if legal_on(c.compiled) else 0

    assert max(map(rate, counts(p.hardware, above=p.gpus))) < GAIN * rate(p.gpus)


def test_a_step_without_an_end_is_too_slow_for_a_limit_alone() -> None:
    run = "qwen3_30b_a3b; h100 x 8"
    assert fast_enough(facts(program(run), 8), math.inf)
    assert not fast_enough(facts(program(f"{run}; require step_time < 60"), 8), math.inf)


# `moedsl explain` knows the words that a plan's page prints.


@pytest.mark.parametrize("word", rotation.some("words of plans", [*words()], 6))
def test_a_word_has_an_entry(word: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain", word.upper()]) == 0
    assert f"{word.upper()} in a plan" in capsys.readouterr().out


def test_every_verdict_and_origin_is_a_word() -> None:
    verdicts = (estimate.FITS, estimate.TIGHT, estimate.NOT)
    assert {*map(str.casefold, verdicts), "pinned", "chosen", "defaulted", "derived"} <= words().keys()


def test_every_label_of_a_page_is_a_word() -> None:
    """The pages that the documents show."""
    documents = [ROOT / "README.md", *(ROOT / "docs").glob("*.md")]
    label = re.compile(r"^([A-Za-z][a-zA-Z ]{2,13})(?=  +\S| \[[#.])|^(Decisions),", re.MULTILINE)
    shown = "\n".join(
        block for d in documents for block in re.findall(r"^FITS  .*?^Next  ", d.read_text("utf-8"), re.M | re.S)
    )
    labels = {(a or b).strip().casefold() for a, b in label.findall(shown)}
    assert len(labels) > 18 and labels <= words().keys(), labels - words().keys()


def test_a_misspelt_word_has_a_hint(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain", "TIHGT"]) == 1
    assert "did you mean `tight`?" in capsys.readouterr().err


def test_sections_parts_of_compute_and_values_of_axes_have_a_page() -> None:
    library = load_stdlib()
    compute = [KINDS[k] for k in ("matrix", "attention", "scan", "passes", "vision", "optimizer")]
    printed = [
        *(s.replace("-", " ") for s in SECTIONS),
        *compute,
        *(w for a in axes.AXES for w in a.words),
        "Walls",
        "Next best",
        "fingerprint",
    ]
    assert not [word for word in printed if not page(word, library)]


def test_words_of_a_page_are_explained_with_a_file_as_without(capsys: pytest.CaptureFixture[str]) -> None:
    shown = ["rests on", "Faster", "FITS", "Goodput", "batch", "passes over memory", "std.mesh.heads"]
    assert main(["explain", *shown]) == 0
    alone = capsys.readouterr().out
    assert main(["explain", "-e", "qwen3_30b_a3b; seq 4k; run x { h100 x 16 }; run y { h100 x 32 }", *shown[4:]]) == 0
    assert all(text in alone for text in capsys.readouterr().out.split("\n\n"))
    assert main(["explain", "-e", "qwen3_30b_a3b; h100 x 16", *shown[:3], "tp"]) == 0
    said = capsys.readouterr().out
    assert "FITS in a plan" in said and "tp = 1" in said
    assert main(["explain", "-e", "qwen3_30b_a3b; h100 x 16", "tensr"]) == 1
