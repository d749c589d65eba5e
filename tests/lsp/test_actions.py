"""Code actions, lenses and commands: every edit, applied as an editor does, gives what its title says.

tests/syntax/test_printer.py holds every fix to this; here it is what an editor is sent.
"""

from collections.abc import Iterator, Mapping, Sequence

import pytest
from lsprotocol import types

from moedsl.facts import axes
from moedsl.lang.parser import parse
from moedsl.lsp import actions, checking
from moedsl.lsp.document import ALLOW, PIN, QUICK_FIX, Document
from moedsl.lsp.workspace import Workspace
from moedsl.planner.plan import Plan
from moedsl.support.diagnostics import Diagnostic
from moedsl.support.source import Source
from tests.helpers import programs, rotation
from tests.helpers.tables import table_of
from tests.lsp import lsp_ask as nav
from tests.syntax.test_printer import BASE, BROKEN, INFEASIBLE

CORPUS = {
    **{name: text for i, (name, text) in enumerate(BROKEN.items()) if i % 4 == 0},
    "emoji before": "# 日本 😀\n"
    + 'require "😀" == "😀"; pin dispatcher=hybridp; fit first\nqwen3_30b_a3b\nh100 x 16\n',
    "two runs": "qwen3_30b_a3b\nh100 x 16\nrun a { fit first; pin tpp=2 }\nrun b { fit first; pin tp=2; pin tp=4 }",
    "a model in a run": "run a {\n  model qwen3_30b_a3bb\n  h100 x 16\n}",
    "one binding of three": BASE + "pin tp=2 dispatcher=altoall cp=1",
    "a phase in a run": "qwen3_30b_a3b\nh100 x 16\nrun a {\n  scal first\n}",
    "in a profile": "profile p { pin recompute=[moe_actt] }\n" + BASE + "p",
    "in a rule": BASE + 'rules r { require x: dispatcher == hybridp because "x" cite ours "y" }',
    "with windows line ends": "qwen3_30b_a3b\r\nh100 x 16\r\nseq 4k\r\npin tp=2\r\npin tp=4\r\n",
    "a vlm": "qwen3_vl_30b_a3b\ngb200 x 16\nvlm freeze_visionn 3d\nseq 4k",
}


def asked(
    made: Workspace, d: types.Diagnostic | None, range_: types.Range, only: list[str] | None = None
) -> list[types.CodeAction]:
    context = types.CodeActionContext([d] if d else [], only=only)  # type: ignore[arg-type]
    ident = types.TextDocumentIdentifier(nav.uri("run.moe"))
    return actions.code_actions(made, types.CodeActionParams(ident, range_, context)) or []


def everywhere(found: Document) -> types.Range:
    return found.lines.range(0, len(found.text))


def opened(text: str) -> tuple[Workspace, Document]:
    """A file with what the solver says of it, if it comes that far."""
    made = nav.workspace({"run.moe": text})
    found = made.document(nav.uri("run.moe"))
    assert found is not None
    return made, nav.solved(made) if found.programs and not found.analysis.failed else found


def applied(made: Workspace, action: types.CodeAction) -> str:
    assert action.edit is not None
    (after,) = nav.changed(made, action.edit).values()
    return after


def found_in(text: str) -> Sequence[Diagnostic]:
    return programs.diagnosed(text)


def fixes(text: str) -> Iterator[tuple[types.CodeAction, types.Diagnostic, str]]:
    """Each quick fix that an editor is offered where a diagnostic is shown, and the text after it."""
    made, found = opened(text)
    for d in checking.diagnostics_of(found, made):
        for action in asked(made, d, d.range, [QUICK_FIX]):
            if action.diagnostics:
                assert action.diagnostics == [d]
                yield action, d, applied(made, action)


@pytest.mark.parametrize("name", CORPUS)
def test_a_quick_fix_answers_its_diagnostic(name: str) -> None:
    text = CORPUS[name]
    unified = text.replace("\r\n", "\n")
    _, unread = parse(Source("run.moe", unified))
    seen = 0
    for action, d, after in fixes(text):
        seen += 1
        left = found_in(after.replace("\r\n", "\n"))
        assert (d.code, d.message.split("\n")[0]) not in {(x.id, x.message) for x in left}, (action.title, after)
        _, still = parse(Source("run.moe", after.replace("\r\n", "\n")))
        assert len(still) <= len(unread), (action.title, after)
        assert action.is_preferred in (None, True)
    assert seen


@pytest.mark.parametrize(
    "name", rotation.some("relaxations", ["a pin among others", "a named wish", "in a run", "a phase in a run"], 1)
)
def test_each_relaxation_is_an_action(name: str) -> None:
    made, found = opened(INFEASIBLE[name])
    (d,) = [x for x in checking.diagnostics_of(found, made) if x.severity == types.DiagnosticSeverity.Error]
    offered = [a for a in asked(made, d, d.range, ["quickfix"]) if a.diagnostics]
    assert offered
    for action in offered:
        after = applied(made, action)
        errors = [x.message for x in found_in(after) if x.is_error]
        assert not errors, (action.title, after)


def test_a_rule_that_refuses_may_be_allowed() -> None:
    made, found = opened("qwen3_30b_a3b; gb200 x 64; pin dispatcher=deepep")
    (d,) = [x for x in checking.diagnostics_of(found, made) if x.severity == types.DiagnosticSeverity.Error]
    (action,) = [a for a in asked(made, d, d.range) if a.title.startswith("Allow")]
    after = applied(made, action)
    assert "allow dispatch.deepep_gpu because " in after
    assert not [x for x in found_in(after) if x.is_error]


def test_all_mistakes_with_one_correction_at_once() -> None:
    text = "# 😀\nqwen3_30b_a3bb\nh100x16\nseq 4k\nfit\npin dispatcher=hybridp tp=1 tp=2\nallow mesh.headz\n"
    made, found = opened(text)
    (action,) = asked(made, None, everywhere(found), [types.CodeActionKind.SourceFixAll.value])
    after = applied(made, action)
    assert after == (
        "# 😀\nqwen3_30b_a3b\nh100 x 16\nseq 4k\nfit first\npin dispatcher=hybridep tp=1 tp=2\nallow mesh.heads\n"
    )
    assert {x.id for x in found_in(after) if x.is_error} == {"check.twice"}


def test_only_what_was_asked_for() -> None:
    made, found = opened(BASE + "pin tpp=2")
    for only in (["refactor"], ["source.organizeImports"], ["refactor.rewrite.moedsl.pin"]):
        assert not asked(made, None, everywhere(found), only)
    assert asked(made, None, everywhere(found), ["source"])
    assert {a.kind for a in asked(made, None, everywhere(found))} == {"quickfix", "source.fixAll"}


# ---------------------------------------------------------------- the solver's choice

RUNS = table_of("lsp", "actions: runs")


def chosen(text: str, run: str) -> tuple[Mapping[str, int], set[str]]:
    """The layout of a run, and the axes that it pins."""
    result = programs.solved(text)
    assert not result.failed, ([d.message for d in result.diagnostics if d.is_error], text)
    (found,) = [c for c in result.chosen if c.problem.program.name == run]
    return found.solution.rows[0].codes, {*found.problem.program.pins}


def plan_of(text: str, run: str) -> Plan:
    result = programs.compiled(text)
    assert not result.failed, ([d.message for d in result.diagnostics if d.is_error], text)
    (plan,) = [p for p in result.plans if p.name == run]
    return plan


@pytest.mark.parametrize("name", rotation.some("pinned", [*RUNS], 1))
def test_pinning_keeps_the_plan(name: str) -> None:
    text = RUNS[name]
    made, found = opened(text)
    run = "a" if "run a" in text else "main"
    before, _ = chosen(text, run)
    inside = found.lines.range(len(text.rstrip()) - 1, len(text.rstrip()) - 1) if run == "a" else everywhere(found)
    offered = asked(made, None, inside, [PIN])
    assert len(offered) > 3
    for action in (offered[0], offered[1], offered[-1]):
        assert f"`{run}`" in action.title
        after = applied(made, action)
        layout, pinned = chosen(after, run)
        assert layout == before, after
        if action is offered[0]:
            origins = {d.name: d.origin for d in plan_of(after, run).decisions}
            assert all(origins[a.name] == "pinned" for a in axes.AXES if a.name in origins), origins
        else:
            assert action.title.removeprefix("Pin ").split("=")[0] in pinned


def test_advice_that_is_not_followed_may_be_allowed() -> None:
    text = "qwen3_235b_a22b\nh100 x 64\nseq 8k\nfit first\npin cp=1 tp=8"
    made, found = opened(text)
    offered = asked(made, None, everywhere(found), [ALLOW])
    assert offered
    for action in offered:
        after = applied(made, action)
        rule = action.title.split()[1]
        plan = plan_of(after, "main")
        assert any(a.rule.endswith(rule) for a in plan.allowed), after


def test_nothing_is_pinned_of_a_run_that_varies() -> None:
    made, found = opened(BASE + "sweep tp in 1, 2")
    assert not asked(made, None, everywhere(found), [PIN])


def test_a_versioned_edit_for_a_client_that_takes_one() -> None:
    made = nav.workspace({"run.moe": BASE + "pin tpp=2"}, client=nav.Client(document_changes=True))
    (action, *_) = asked(made, None, types.Range(types.Position(4, 0), types.Position(4, 9)))
    assert action.edit is not None
    (change,) = action.edit.document_changes or ()
    assert isinstance(change, types.TextDocumentEdit)
    assert (change.text_document.uri, change.text_document.version) == (nav.uri("run.moe"), 1)


def test_a_mistake_in_a_used_file_is_fixed_there() -> None:
    used = "profile small { pin dispatcher=hybridp }\n"
    made = nav.workspace({"run.moe": 'use "p.moe"\n' + BASE + "small\n", "p.moe": used})
    found = made.document(nav.uri("run.moe"))
    assert found is not None
    offered = asked(made, None, everywhere(found), ["quickfix"])
    texts = [nav.changed(made, a.edit) for a in offered if a.edit]
    assert {nav.uri("p.moe"): used.replace("hybridp", "hybridep")} in texts


# ---------------------------------------------------------------- lenses and commands


def test_lenses() -> None:
    made = nav.workspace({"run.moe": "# 😀\nqwen3_30b_a3b\nseq 4k\nh100 x 16\nfit first"})
    found = made.document(nav.uri("run.moe"))
    assert found is not None
    ident = nav.ident(found)
    assert actions.code_lenses(found, types.CodeLensParams(ident)) == []
    found = nav.solved(made)
    plan, report = actions.code_lenses(found, types.CodeLensParams(ident))
    assert plan.range.start.line == report.range.start.line == 3
    assert plan.command is not None
    e = plan_of(found.text, "main").estimate
    assert plan.command.title == f"16 h100, {e.step_time_s:.1f} s a step, FITS"
    assert (plan.command.command, plan.command.arguments) == ("moedsl.showPlan", [found.uri, "main"])


def test_a_lens_over_each_run() -> None:
    made = nav.workspace({"run.moe": "qwen3_30b_a3b\nh100 x 16\nrun a { fit first }\nrun b { sweep tp in 1, 2 }"})
    found = nav.solved(made)
    got = actions.code_lenses(found, types.CodeLensParams(nav.ident(found)))
    assert [g.range.start.line for g in got] == [2, 2, 3, 3]
    assert got[2].command is not None
    assert "(2 plans)" in got[2].command.title


def test_commands() -> None:
    made = nav.workspace({"run.moe": "qwen3_30b_a3b\nh100 x 16\nrun a { fit first }\nrun b { scale first }"})
    where = nav.uri("run.moe")
    shown = actions.show_plan(made, where)
    assert shown is not None
    assert [p["name"] for p in shown["plans"]] == ["a", "b"]
    assert shown["text"].startswith("a: qwen3_30b_a3b on 16 h100")
    one = actions.show_plan(made, where, "b")
    assert one is not None
    assert one["text"].startswith("b: ")
    report = actions.show_report(made, where, "a")
    assert report is not None
    assert "<html" in str(report["html"])
    assert actions.show_plan(made, nav.uri("never.moe")) is None


def test_a_command_says_why_there_is_no_plan() -> None:
    made = nav.workspace({"run.moe": "qwen3_30b_a3bb\nh100 x 16"})
    shown = actions.show_plan(made, nav.uri("run.moe"))
    assert shown is not None
    assert "qwen3_30b_a3bb" in shown["text"]
    report = actions.show_report(made, nav.uri("run.moe"))
    assert report is not None
    assert report["html"] is None


def test_pin_all() -> None:
    text = "qwen3_30b_a3b\nh100 x 16\nrun a { fit first }\nrun b { scale first }"
    made = nav.workspace({"run.moe": text})
    edit = actions.pin_all(made, nav.uri("run.moe"))
    assert edit is not None
    (after,) = nav.changed(made, edit).values()
    for run in ("a", "b"):
        assert chosen(after, run)[0] == chosen(text, run)[0]
    again = nav.workspace({"run.moe": after})
    assert actions.pin_all(again, nav.uri("run.moe")) is None
