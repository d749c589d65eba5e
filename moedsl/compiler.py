"""The pipeline in one place: Source -> Module -> Programs -> Problems -> Solutions -> Plans -> Artifacts.

Each stage is a function from its input to its output and a list of diagnostics; a stage runs only while there are no
errors. `--stop-after` prints any stage.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from attrs import define, evolve, field

from moedsl.emit import isolation_table, set_fields
from moedsl.facts import recipes
from moedsl.facts.releases import NEWEST
from moedsl.lang import ast, parser
from moedsl.planner import experiment, isolate, ladder
from moedsl.planner.build import make_plan
from moedsl.planner.notes import notes
from moedsl.planner.plan import Plan
from moedsl.planner.several import OfRun, merged
from moedsl.rules import library, stdlib
from moedsl.rules.check import statements, suspicious
from moedsl.rules.check.check import check
from moedsl.rules.check.program import Program
from moedsl.rules.library import Library
from moedsl.solver import counts, infeasible, solve
from moedsl.solver.solve import Chosen, Progress
from moedsl.support import limits
from moedsl.support.diagnostics import Diagnostic, error, suggest, warning
from moedsl.support.source import Source

STAGES = ("parse", "check", "lower", "solve", "plan")
ABSENT = ("check.no_model", "check.no_hardware")
"""Errors that may only follow from a statement that did not parse, and that a file without a run does not have."""


@define
class Result:
    """The outputs of the stages that ran."""

    source: Source
    module: ast.Module | None = None
    library: Library = field(factory=Library)
    programs: tuple[Program, ...] = ()
    chosen: tuple[Chosen, ...] = ()
    plans: tuple[Plan, ...] = ()
    diagnostics: list[Diagnostic] = field(factory=list)
    like: str | Source = ""
    """The Bridge recipe, or the pins, that give the layout, except where the file pins another value."""
    target: str = ""
    """The Bridge release, which overrides the file's; empty to use the file's."""
    below: ast.Module | None = None
    """The pins of the recipe in `like`."""
    run: str | None = None
    """The run to compile; None for all runs in the file."""
    asks: str = "plans"
    """plans; recipe: plans that become recipes, so a model without a bridge is an error; page: plans without what a
    page does not print; diagnostics: only the plans that a diagnostic needs."""

    @property
    def failed(self) -> bool:
        return any(d.is_error for d in self.diagnostics)

    @property
    def sources(self) -> dict[str, Source]:
        """The texts that diagnostics point into, with the file itself, which the library lacks if parsing failed."""
        return {**self.library.sources, self.source.name: self.source}


def load_stdlib() -> Library:
    """Load the stdlib: parse it, or read it from the cache."""
    return stdlib.load()


def compile_source(
    source: Source,
    stop_after: str = "plan",
    progress: Progress = lambda _: None,
    like: str | Source = "",
    target: str = "",
    asks: str = "plans",
    run: str | None = None,
) -> Result:
    """Run the stages up to and including `stop_after`.

    `like` is a Bridge recipe whose layout is pinned, or such pins; `target` is a release; `asks` and `run` are as in
    `Result`. Raises `limits.TooLarge` if a run has too many combinations, or exceeds a limit that the caller set.
    """
    result = Result(source, None, load_stdlib(), like=like, target=target, asks=asks, run=run)
    return advance(result, STAGES[: STAGES.index(stop_after) + 1], progress)


def advance(result: Result, stages: Iterable[str], progress: Progress = lambda _: None) -> Result:
    """Run further stages on a result, in place, up to the first error."""
    for stage in stages:
        if stage in _STEPS:
            _STEPS[stage](result, progress)
        if result.failed and stage != "parse":
            break
    return result


def _parse(r: Result, _: Progress) -> None:
    r.module, diagnostics = parser.parse(r.source)
    r.diagnostics.extend(diagnostics)
    if r.module is not None:
        library.use(r.library, r.source, r.module, parser.parse)
    if r.like:
        found = r.like if isinstance(r.like, Source) else recipes.like(r.like)
        if isinstance(found, Source):
            r.below = parser.parse(found)[0]
            r.library.sources[found.name] = found
        else:
            r.diagnostics.extend(found)


def _check(r: Result, _: Progress) -> None:
    if r.module is None:
        return
    r.programs, diagnostics = check(r.module, r.library, r.below.items if r.below else (), r.target)
    if r.asks == "recipe":
        diagnostics = [evolve(d, severity="error") if d.id == "check.no_bridge" else d for d in diagnostics]
    half_read = r.failed
    # A file of declarations, such as a team's rules, is for others to use, unless the runs that it uses go unread
    no_run = r.asks == "diagnostics" and r.module.items and r.module.run is None and not r.library.unused
    r.diagnostics.extend(d for d in diagnostics if not ((half_read or no_run) and d.id in ABSENT))
    recipe = recipes.named(r.like) if r.below and isinstance(r.like, str) else None
    if recipe is not None:  # the recipe may be for another model
        r.diagnostics.extend(
            warning("check.like_other_model", p.spans["hardware"], recipe=recipe.name, hf=recipe.hf, model=p.model.name)
            for p in r.programs
            if p.model.hf != recipe.hf
        )
    if r.run is None or r.failed:
        return
    names: dict[str, Program] = {}
    for p in r.programs:  # an isolation has a plan for each variant
        labels = [f".{p.isolate.axis}_{v.label}" for v in p.isolate.variants] if p.isolate else [""]
        names |= {p.name + label: p for label in labels}
    if r.run in names:  # keep the other phases of its workflow, and the other variants of its isolation
        named = names[r.run]
        r.programs = tuple(p for p in r.programs if p is named or (p.workflow and p.workflow == named.workflow))
    else:
        help = suggest(r.run, [*names]) or f"there are {', '.join(names)}"
        r.programs = ()
        r.diagnostics.append(error("plan.unknown_run", run=r.run, help=help))


def _solve(r: Result, progress: Progress) -> None:
    every: list[OfRun] = []
    for i, program in enumerate(r.programs):
        progress(f"solving {program.name}" + (f" ({i + 1} of {len(r.programs)})" if len(r.programs) > 1 else ""))
        with limits.of_part(program):
            chosen, diagnostics = _choose(program, r.chosen, progress)
        every += [(program, d) for d in diagnostics]
        r.chosen += chosen
    r.diagnostics.extend(merged(every, r.programs))


def _choose(p: Program, earlier: tuple[Chosen, ...], progress: Progress) -> tuple[tuple[Chosen, ...], list[Diagnostic]]:
    """Choose the layout of a program, or of each variant of an isolation; a phase builds on `earlier` phases."""
    if p.workflow is not None:
        before = [c for c in earlier if c.problem.program.workflow == p.workflow]
        if len(before) < [*statements.PHASES.values()].index(p.phase):
            return (), []  # an earlier phase has no layout
        if before:
            taken = {} if p.batch_near is None else {"batch": before[0].problem.global_batch, "batch_near": None}
            p = evolve(p, gpus=before[0].problem.gpus, **taken)
        if p.phase == "profile":  # keep the layout that scale chose, under the rules of the profile phase
            scale = before[-1]
            compiled = solve.solve(p, scale.problem.gpus, keep=0, must_fit=scale.must_fit)
            return (evolve(compiled, solution=scale.solution),), []
        progress(f"{p.name}: solving")
    elif p.isolate is not None:
        return isolate.choose(p, progress)
    chosen, diagnostics = choose(p, progress)
    return (chosen,) if chosen is not None else (), diagnostics


def choose(p: Program, progress: Progress) -> tuple[Chosen | None, list[Diagnostic]]:
    """Choose the best layout with its notes, or explain why there is none."""
    solved = counts.choose(p, progress)
    if isinstance(solved, Chosen):
        return solved, notes(solved)
    progress("no layout fits: searching for the conflict")
    return None, [infeasible.diagnostic(infeasible.analyse(infeasible.telling(solved)))]


def _plan(r: Result, progress: Progress) -> None:
    r.diagnostics.extend(d for d in experiment.notes(r.chosen) if d not in r.diagnostics)
    short = list[OfRun]()
    for c in r.chosen:
        if (p := c.problem.program).data != "mock":
            env = c.environment(c.solution.rows[0].codes)
            short += [(p, d) for d in suspicious.small_vocabulary(p, env)]
    r.diagnostics.extend(merged(short, r.programs))
    notes = [d for d in r.diagnostics if not d.is_error]
    # if no plans are shown, make only those that a diagnostic may depend on
    planned = [
        c
        for c, p in ((c, c.problem.program) for c in r.chosen)
        if r.asks != "diagnostics" or _names_fields(p) or p.target != NEWEST.bridge or p.isolate is not None
    ]
    # diagnose fields that runs set or that their own rules derive, then what the Bridge release lacks
    of_fields, of_release = list[OfRun](), list[OfRun]()
    for c in planned:
        p, row = c.problem.program, c.solution.rows[0]
        progress(f"planning {p.name}")
        with limits.of_part(p):
            plan = make_plan(c, notes, r.sources, whole=r.asks != "page")
        if declared := r.library.declared(plan.model, plan.hardware):
            plan = evolve(plan, declared=declared)
        r.plans = (*r.plans, plan)
        if _names_fields(p):
            env = c.environment(row.codes, row.prices)
            of_fields += [(p, d) for d in set_fields.judged(p, plan, r.library, env)]
        if p.target != NEWEST.bridge:
            of_release += [(p, d) for d in set_fields.refused(p, plan)]
    r.diagnostics.extend(merged([*of_fields, *of_release], [c.problem.program for c in r.chosen]))
    programs = [c.problem.program for c in planned]
    if r.asks != "diagnostics" and any(p.workflow for p in programs):
        rungs = ladder.of_workflow(r.chosen)
        r.plans = tuple(evolve(p, ladder=rungs.get(p.name)) for p in r.plans)
    if any(p.isolation for p in r.plans):
        r.diagnostics.extend(isolation_table.second_differences(programs, r.plans))


def _names_fields(p: Program) -> bool:
    """Whether a run sets fields, or its own rules derive some."""
    return bool(p.sets) or any(not r.is_std for r in p.of("derive"))


_STEPS: dict[str, Callable[[Result, Progress], None]] = {
    "parse": _parse,
    "check": _check,
    "solve": _solve,
    "plan": _plan,
}
"""The stages except `lower`, which runs inside `solve`: it depends on the number of GPUs."""
