"""Hover, hints and diagnostics of snapshots; broken texts of every kind."""

from pathlib import Path

import pytest
from lsprotocol import types

from moedsl.compiler import compile_source
from moedsl.lang import keywords
from moedsl.lang.text_edits import applied
from moedsl.lsp import actions, checking, completion, describe
from moedsl.lsp.document import Client
from moedsl.lsp.workspace import Workspace
from moedsl.support.source import Source
from tests.helpers import rotation
from tests.helpers.paths import EXAMPLES
from tests.helpers.tables import table_of
from tests.lsp.lsp_ask import EVERYTHING, NAME, document, labels, long_file, shown

RUN = "qwen3_235b_a22b\ngb200 x 256\nseq 128k\nfit first\n"
WHOLE = types.Range(types.Position(0, 0), types.Position(10_000, 0))


def everything(text: str) -> list[types.Diagnostic]:
    """The diagnostics of a text, as they are sent."""
    files = Workspace(EVERYTHING)
    files.open(NAME.uri, 1, text)
    d = files.document(NAME.uri)
    assert d is not None
    return checking.diagnostics_of(d, files)


HOVERS = table_of("lsp", "features: hovers")


@pytest.mark.parametrize("text", HOVERS)
def test_hover_explains_the_word(text: str) -> None:
    assert HOVERS[text] in (shown(text) or "")


@pytest.mark.parametrize("text", ["# mod|el", 'require a: tp < 3 because "mod|el"', "|\n", "seq 12|8k"])
def test_hover_says_nothing_of_what_is_no_name(text: str) -> None:
    assert shown(text) is None


def test_hover_says_what_was_chosen_and_why() -> None:
    run = RUN + "require cp >= 8"
    cp = compile_source(Source("run.moe", run), "plan").plans[0].layout.cp
    text = shown(run.replace("cp", "c|p"), solved=True)
    assert text is not None and f"**cp = {cp}** in main: chosen" in text and "best by bring_up" in text


def test_hover_without_markdown_is_plain() -> None:
    text = shown("gb2|00 x 8", Client())
    assert text is not None and "**" not in text and "`" not in text


def test_every_keyword_of_the_grammar_is_explained() -> None:
    w = keywords.keywords()
    known = {*w.statements, *w.declarations, *w.members, *w.clauses, *w.links, *w.operators, *w.constants}
    assert {*describe.keywords()} == known
    assert all(form.startswith("`") and meaning for form, meaning in describe.keywords().values())


@pytest.mark.parametrize("path", rotation.some("hints", EXAMPLES, 1), ids=lambda p: p.stem)
def test_hints_are_of_the_plan(path: Path) -> None:
    """Every example: one line of figures for each plan, and what accepting writes is what the plan has."""
    text = path.read_text(encoding="utf-8")
    d = document(text, solved=True)
    assert d.plan is not None
    found = actions.inlay_hints(d, types.InlayHintParams(NAME, WHOLE))
    figures = [str(h.label) for h in found if "tok/s/GPU" in str(h.label)]
    assert len(figures) == len(d.plan.plans) > 0


@pytest.mark.parametrize(
    "name", ["several_runs", *rotation.some("pinned examples", ["qwen3_235b_gb200_128k", "deepseek_v3_h100"], 1)]
)
def test_pinning_everything_keeps_the_plan(name: str) -> None:
    """The file with the edit of each run has the layouts that it had, all of them pinned."""
    text = next(p for p in EXAMPLES if p.stem == name).read_text(encoding="utf-8")
    d = document(text, solved=True)
    assert d.plan is not None
    pins = [actions.pin(d, p.name, [a.name for a in (*actions.WHERE_ON, *actions.ALWAYS)]) for p in d.plan.plans]
    text = applied(text, [e for e in pins if e])
    again = compile_source(Source("b.moe", text))
    assert not again.failed
    assert [p.layout for p in again.plans] == [p.layout for p in d.plan.plans]
    assert {x.origin for p in again.plans for x in p.decisions if x.name == "ep"} == {"pinned"}


def test_the_fewest_gpus_are_a_hint() -> None:
    d = document("qwen3_30b_a3b\nh100\nfit first\n", solved=True)
    found = actions.inlay_hints(d, types.InlayHintParams(NAME, WHOLE))
    edit = found[0].text_edits
    assert edit is not None and str(found[0].label).startswith("x ") and edit[0].range.start == types.Position(1, 4)


def test_hints_outside_the_range_are_left_out() -> None:
    d = document(RUN, solved=True)
    assert (
        actions.inlay_hints(d, types.InlayHintParams(NAME, types.Range(types.Position(2, 0), types.Position(3, 0))))
        == []
    )


def test_a_second_place_is_related_and_a_way_out_is_said() -> None:
    (d,) = everything("qwen3_30b_a3b\nh100 x 8\nseq 4k\nseq 8k\n")
    assert d.related_information is not None and d.related_information[0].location.range.start.line == 2
    assert "help: keep one of them" in d.message
    assert d.code_description is not None
    path, _, line = d.code_description.href.removeprefix("file://").partition("#L")
    assert Path(path).read_text(encoding="utf-8").splitlines()[int(line) - 1] == "## check.twice (error)"


def test_a_refusal_links_to_the_rule_that_refuses() -> None:
    d = document("qwen3_30b_a3b\ngb200 x 64\npin dispatcher=deepep\n", solved=True)
    (found,) = checking.diagnostics_of(d, Workspace(EVERYTHING))
    assert found.code_description is not None
    path, _, line = found.code_description.href.removeprefix("file://").partition("#L")
    assert "require deepep_gpu:" in Path(path).read_text(encoding="utf-8").splitlines()[int(line) - 1]


def test_an_error_of_a_used_file_is_shown_where_it_is_used(tmp_path: Path) -> None:
    (tmp_path / "broken.moe").write_text("profile ours { h100 x }\n")
    files = Workspace(EVERYTHING)
    uri = (tmp_path / "a.moe").as_uri()
    files.open(uri, 1, 'qwen3_30b_a3b; h100 x 8\nuse "broken.moe"\n')
    d = files.document(uri)
    assert d is not None
    (found,) = checking.diagnostics_of(d, files)
    assert found.range.start.line == 1 and found.related_information is not None
    assert found.related_information[0].location.uri == (tmp_path / "broken.moe").as_uri()


def test_three_mistakes_are_three_diagnostics() -> None:
    assert [d.range.start.line for d in everything("qwen3_30b_a3b\nh100 x\npin\nrequire tp <\n")] == [1, 2, 3]


@pytest.mark.parametrize("path", rotation.some("cut examples", EXAMPLES, 2), ids=lambda p: p.stem)
def test_a_cut_example_breaks_nothing(path: Path) -> None:
    """Cut at many offsets, as if it were being typed: every feature answers, and few things are wrong."""
    text = path.read_text(encoding="utf-8")
    for at in range(0, len(text), 11):
        d = document(text[:at])
        position = d.lines.position(at)
        completion.completion(d, types.CompletionParams(NAME, position))
        describe.hover(d, types.HoverParams(NAME, position))
        assert actions.inlay_hints(d, types.InlayHintParams(NAME, WHOLE)) == []
        assert len(everything(text[:at])) <= 3, text[max(0, at - 40) : at]


@pytest.mark.parametrize(
    "text", ["", "\n", "}", "{", "((((", '"', "\\", "\x0b\u2028", "é" * 50, "pin " * 500, "[" * 70]
)
def test_any_text_gets_an_answer(text: str) -> None:
    everything(text)
    labels(text + "|")
    shown(text + "|")


def test_a_long_file_has_no_mistake_in_it() -> None:
    assert everything(long_file()) == []
    assert 290 <= long_file().count("\n") <= 300
