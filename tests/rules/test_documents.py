"""The claims of the documents: nothing is prose only, every rule and test named exists, every line is accounted for."""

import ast as python
import re
from functools import cache

import pytest

from moedsl.cli.reference.page import page
from moedsl.compiler import load_stdlib
from moedsl.lang.parser import parse
from moedsl.rules import collect, documents, library
from moedsl.rules.documents import Copy, Document
from moedsl.support.source import Source
from tests.helpers.paths import ROOT
from tests.helpers.tables import table_of
from tests.oracles.rule_judge import known, of_recipes

SHARED = ROOT.parent / "shared"
TEXTS = {file.name: file for folder in ("seeds", "nvidia_2026_08") for file in (SHARED / folder).glob("*.*")}
"""The texts at hand, by name."""
STDLIB = load_stdlib()
FOUND = documents.load(documents.rule_ids(STDLIB))
TITLES = {"VLM training", "long context", "optimization workflow", "expert-parallel overlap"}
"""VLM training has two copies; the last two have an older and a newer text."""


def test_the_declarations_are_right() -> None:
    """Rules that are carried exist, and no claim is without a carrier and a test."""
    shown = [
        f"{d.labels[0].span.file}:{_line(d.labels[0].span.file, d.labels[0].span.start)} {d.message}"
        for d in FOUND.diagnostics
    ]
    assert not shown, "\n".join(shown)


def _line(file: str, start: int) -> int:
    return FOUND.sources[file].position(start)[0]


def test_all_texts_are_here() -> None:
    assert {d.title for d in FOUND.documents} == TITLES
    dates = [c.date for d in FOUND.documents for c in d.copies]
    assert sorted(dates) == ["2026-08-03"] * 2 + [documents.UNDATED] * 5


def test_what_is_superseded_is_in_no_newer_text() -> None:
    """A claim is superseded by a newer copy of its document, and the reason names a rule."""
    superseded = [(d, c, c.superseded) for d in FOUND.documents for c in d.claims if c.superseded is not None]
    assert superseded
    for d, claim, instead in superseded:
        assert max(c.date for c in d.copies if c.date != documents.UNDATED) not in d.dates(claim)
        assert {*re.findall(r"std\.[\w.]*\w", instead)} <= documents.rule_ids(STDLIB), claim.says


def test_the_tests_that_show_a_claim_exist() -> None:
    for test in sorted({test for d in FOUND.documents for c in d.claims if c.left is None for test in c.shown}):
        file, _, name = test.partition("::")
        function, _, parameter = name.partition("[")
        assert function in functions(file), f"{file} has no {function}"
        if file == "tests/stdlib/test_rule_cases.py":
            assert parameter.removesuffix("]") in {*known(), *of_recipes()}, f"no rule is called {parameter}"


@cache
def functions(file: str) -> frozenset[str]:
    """The test functions of a file."""
    tree = python.parse((ROOT / file).read_text(encoding="utf-8"))
    return frozenset(
        n.name for n in python.walk(tree) if isinstance(n, python.FunctionDef) and n.name.startswith("test_")
    )


def test_every_rule_that_cites_a_document_is_carried() -> None:
    """A rule taken from a text is the carrier of a sentence of it."""
    carried = {r for d in FOUND.documents for c in d.claims for r in c.carried}
    cited = {
        rule.id
        for prefix, block in STDLIB.rules
        for rule in (collect.read_rule(prefix, block, m, []) for m in block.members)
        if any(c.startswith("seed") for c in rule.cites)
    }
    assert cited - carried == set()


def test_the_texts_are_cited_by_their_titles() -> None:
    """`cite seed "long context, ..."`: a document, with the date of a dated text, then where in it."""
    dated = {f"{d.title} of {c.date}" for d in FOUND.documents for c in d.copies if c.date != documents.UNDATED}
    cited = {
        cite.where.value.split(",")[0]
        for _, block in STDLIB.rules
        for m in block.members
        for cite in m.cites
        if cite.kind.id == "seed"
    }
    assert cited <= TITLES | dated
    assert dated <= cited


def test_claims_of_a_rule() -> None:
    found = documents.claims_of("std.layout_advice.keep_dp")
    assert ("long_context", "data parallelism") in {(d.name, c.where) for d, c in found}
    assert documents.claims_of("std.layout_advice.nothing") == ()


def test_an_explanation_has_the_dates_and_what_is_superseded() -> None:
    shown = page("cuda_graph_advice.partial_first", STDLIB)
    assert shown is not None
    line = next(line for line in shown.splitlines() if "dropless MoE starts" in line)
    assert "undated" in line and "superseded: moe_router and moe_preprocess first" in line
    newer = page("cuda_graph_advice.narrow_first", STDLIB)
    assert newer is not None and "2026-08-03)" in newer


# ---------------------------------------------------------------- the texts, line by line


def copies() -> list[object]:
    return [pytest.param(d, c, id=f"{d.name}-{c.name}") for d in FOUND.documents for c in d.copies]


@pytest.mark.parametrize(("document", "copy"), copies())
def test_every_line_is_accounted_for(document: Document, copy: Copy) -> None:
    """It belongs to a claim, or it is listed with the reason why it states nothing; not both."""
    if copy.file not in TEXTS:
        pytest.skip("the text is not at hand")
    text = TEXTS[copy.file].read_text(encoding="utf-8").split("\n")
    lines = {i for i, line in enumerate(text, 1) if line.strip() not in ("", "-")}
    claimed = {i for c in document.claims for i in c.lines.get(copy.name, ())}
    ignored = [i for some in copy.ignored.values() for i in some]
    assert sorted(lines - claimed - {*ignored}) == [], "neither claimed nor ignored"
    assert sorted(claimed & {*ignored}) == [], "claimed and ignored"
    assert sorted(i for i in claimed | {*ignored} if i > len(text) or not text[i - 1].strip()) == [], "no such line"
    assert len(ignored) == len({*ignored}), "ignored twice"


# ---------------------------------------------------------------- mistakes in a declaration

HEAD = 'document d { title "t"; sources { a { file "f" heading [1] } }\n'
CLAIM = (
    'claim { says "s"; where "w"; kind rule; lines a=[2]; carried [std.mesh.heads]; shown ["tests/test_x.py::test_y"] }'
)
WRONG = table_of("rules", "documents: wrong")


@pytest.mark.parametrize(("id", "head", "claim", "at"), WRONG)
def test_a_mistake_is_told_where_it_stands(id: str, head: str, claim: str, at: str) -> None:
    text = head + claim + "}\n"
    found = declared(text).diagnostics
    places = [(d.id, text[d.labels[0].span.start : d.labels[0].span.end]) for d in found]
    assert (id, at) in places, places


def test_what_is_right_is_read() -> None:
    found = declared(
        HEAD
        + CLAIM.replace("[2]", "[2, 4-6]")
        + '\nclaim { says "x"; where "w"; kind pitfall; lines a=[3]; left "no" } }'
    )
    assert not found.diagnostics
    (document,) = found.documents
    assert document.copies == (Copy("a", "f", ignored={"heading": (1,)}),)
    first, second = document.claims
    assert (first.lines, first.carried, first.shown) == (
        {"a": (2, 4, 5, 6)},
        ("std.mesh.heads",),
        ("tests/test_x.py::test_y",),
    )
    assert (second.kind, second.left, second.carried) == ("pitfall", "no", ())


def declared(text: str) -> documents.Documents:
    """The documents of a text, against the rules of the stdlib."""
    source = Source("d.moe", text)
    module, found = parse(source)
    assert module is not None and not found, found
    mine = library.Library()
    mine.add(source, module, "run")
    return documents.read(mine, documents.rule_ids(STDLIB))


def test_a_plan_reads_no_document() -> None:
    """The stdlib that a plan loads has none, so that its start does not pay for them."""
    assert STDLIB.documents == {}
    assert len(FOUND.documents) == 4
