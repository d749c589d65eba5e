"""What the tests of whole programs share: text in, plans and folders out."""

from collections.abc import Mapping
from pathlib import Path

from attrs import evolve

from moedsl.bridge.verify import cases
from moedsl.bridge.verify.cases import Case, Report
from moedsl.bridge.verify.client import Server
from moedsl.compiler import Result, compile_source
from moedsl.emit.artifact import files_of
from moedsl.planner.plan import Plan
from moedsl.support.diagnostics import Diagnostic
from moedsl.support.files import write_all
from moedsl.support.source import Source
from tests.helpers.paths import ROOT


def compiled(text: str, name: str = "run.moe", like: str = "", run: str | None = None) -> Result:
    """Every stage of one program; a worker compiles a text once, and each test has plans of its own."""
    return compile_source(Source(name, text), like=like, run=run)


def solved(text: str, name: str = "run.moe") -> Result:
    """The layouts of a program, without its plans: planning takes most of a compile."""
    return compile_source(Source(name, text), "solve")


def diagnosed(text: str, name: str = "run.moe") -> tuple[Diagnostic, ...]:
    """What `moedsl check` says of a program: only plans on which a diagnostic depends are made."""
    return tuple(compile_source(Source(name, text), asks="diagnostics").diagnostics)


def example(file: Path) -> Result:
    """`compiled` of an example."""
    return compiled(file.read_text(encoding="utf-8"), file.relative_to(ROOT).as_posix())


def plan_of(text: str) -> Plan:
    """The plan of a program with one run that must compile."""
    result = compiled(text)
    assert not result.failed, result.diagnostics
    (plan,) = result.plans
    return plan


def written(result: Result, folder: Path) -> list[Case]:
    """Every plan of a result on disk, as cases for the verifier."""
    out: list[Case] = []
    for plan in result.plans:
        where = folder / plan.name
        assert not write_all(where, files_of(plan, result.source, result.library))
        case = cases.read(str(where))
        assert isinstance(case, Case), case
        out.append(case)
    return out


def stages_key(plan: Plan) -> str:
    """What the stages that Bridge builds, and what it is asked of them, depend on: overlap and graphs are policies."""
    layout = {k: getattr(plan.layout, k) for k in ("tp", "pp", "vpp", "ep", "etp", "pipeline_layout")}
    planned = [(s.params, s.expert_params) for s in plan.estimate.memory.stages]
    return repr((plan.model, plan.policy, layout, planned))


def judged(server: Server, runs: Mapping[str, str], folder: Path) -> dict[str, Report]:
    """The verifier's reports of named programs, compiled into a folder."""
    asked = [evolve(c, file=name) for name, run in runs.items() for c in written(compiled(run, name), folder / name)]
    return {r.file: r for r in server.judge(asked)}
