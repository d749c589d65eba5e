"""Say what another release changes for a run file, a recipe or a run of Megatron-LM: `moedsl upgrade`.

All answers about the other release are from tables: its fields with their defaults, what AutoBridge gives the model,
the names that are gone (tools/bridge_fields.py, tools/bridge_names.py), and the rules with `since` or `until`. Only the
release that a recipe is from may run, to say what the recipe sets.
"""

from __future__ import annotations

import ast
import json
from collections.abc import Collection, Container, Iterable, Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from attrs import evolve, frozen

from moedsl.bridge.lint.facts import Recipe
from moedsl.bridge.lint.rules import environment, read_rules
from moedsl.bridge.lint.run import PHASE, from_bridge, machine
from moedsl.bridge.lint.source import read
from moedsl.bridge.recipe_import import of_arguments as imported_arguments
from moedsl.bridge.verify import cases, environments
from moedsl.bridge.verify.cases import Report, choices
from moedsl.bridge.verify.client import Server, is_installed
from moedsl.compiler import Result, compile_source, load_stdlib
from moedsl.emit.settings import RESETS, known_values
from moedsl.emit.settings import sections as stated
from moedsl.facts import fields, megatron_arguments
from moedsl.facts.axes import show
from moedsl.facts.fields import LATEST
from moedsl.facts.releases import BRIDGE, KNOWN, RENAMED, Release, as_number
from moedsl.facts.values import normalise
from moedsl.lang import ast as moe
from moedsl.planner.plan import Plan
from moedsl.rules.collect import read_rule
from moedsl.rules.evaluators import holds
from moedsl.rules.library import Library
from moedsl.rules.rule import Rule
from moedsl.support import foreign
from moedsl.support.diagnostics import Diagnostic, error
from moedsl.support.json_form import JsonForm
from moedsl.support.source import Source
from moedsl.support.text import short, titled, wrapped

SUBJECT, ISSUES = "release", "known_issues"
"""The subject of rules blocks for this command alone, and the block on known issues: when a run is free of each."""
UNKNOWN = "not documented"
"""The default of a field whose release has no wheel."""


@frozen
class Change(JsonForm):
    """A field that another release lacks, or whose value changes there although nothing states it."""

    field: str
    now: Any
    then: Any
    """None if the field is gone."""
    instead: str = ""
    """The field that took its place."""
    is_stated: bool = False
    """Whether the run or the recipe itself sets it."""


@frozen
class Law(JsonForm):
    """A rule that holds in only one of two releases, or an issue that is known there."""

    rule: str
    because: str
    cites: tuple[str, ...]
    is_broken: bool = False
    """Whether the layout breaks it in the release that has it."""


@frozen
class Estimate(JsonForm):
    """What a run's plan for a release says."""

    bridge: str
    layout: Mapping[str, Any]
    seconds: float
    peak_gib: float
    fits: str


@frozen
class Upgrade(JsonForm):
    """What another release changes for one run or recipe."""

    name: str
    source: str
    target: str
    refused: tuple[str, ...] = ()
    """Why the release refuses it as it is."""
    gone: tuple[Change, ...] = ()
    defaults: tuple[Change, ...] = ()
    appear: tuple[Law, ...] = ()
    disappear: tuple[Law, ...] = ()
    issues: tuple[Law, ...] = ()
    estimates: tuple[Estimate, ...] = ()
    keep: tuple[str, ...] = ()
    """The lines that keep the old behaviour."""
    unread: tuple[str, ...] = ()
    new_fields: int = 0
    documents: str = ""
    """Where the facts of a release without a wheel are from."""


Failed = tuple[tuple[Diagnostic, ...], Mapping[str, Source]]


# ---------------------------------------------------------------- a run file


def of_run(source: Source, before: str, after: Release, run: str | None = None) -> list[Upgrade] | Failed:
    """Compare the plans of each run for two releases, and what its first layout is in the second."""
    old = compile_source(source, target=before, run=run)
    if old.failed:
        return tuple(old.diagnostics), old.sources
    new = compile_source(source, target=after.bridge, run=run)
    return [_of_plan(old, new, at, after) for at in range(len(old.plans))]


def _of_plan(old: Result, new: Result, at: int, after: Release) -> Upgrade:
    chosen, plan = old.chosen[at], old.plans[at]
    program, row = chosen.problem.program, chosen.solution.rows[0]
    env = chosen.environment(row.codes, row.prices)
    there = evolve(plan, target=evolve(plan.target, bridge=after.bridge))
    values = known_values(plan, program.model), known_values(there, program.model)
    own = {s.path for _, group in stated(plan) for s in group}
    now, then = plan.target.bridge, after.bridge
    gone = tuple(_gone(path, value, then, path in own) for path, value in values[0].items() if not _has(path, then))
    changed = tuple(
        Change(path, value, values[1][path])
        for path, value in values[0].items()
        if path not in own and path in values[1] and values[1][path] != value
    )
    appear, disappear = _laws(program.rules, env, (), now, then)
    plans = [plan, *(p for p in new.plans if p.name == plan.name)]
    return Upgrade(
        plan.name, now, then,
        refused=tuple(d.message for d in new.diagnostics if d.is_error),
        gone=tuple(c for c in gone if c.field in plan.set or c.now is not None), defaults=changed,
        appear=appear, disappear=disappear, issues=_issues(old.library, env, (), then),
        estimates=tuple(map(_estimate, plans)) if len(plans) > 1 else (),
        keep=tuple(f"set {c.field} = {_moe(c.now)}" for c in changed if _is_plain(c.now) and c.field not in RESETS),
        new_fields=len(values[1].keys() - values[0].keys()), documents=after.documents,
    )  # fmt: skip


def _estimate(p: Plan) -> Estimate:
    m = p.estimate.memory
    layout = {**p.layout.to_json(), **p.policy.to_json()}
    return Estimate(p.target.bridge, layout, p.estimate.step_time_s, m.peak_gib, m.verdict)


# ---------------------------------------------------------------- a recipe


def of_recipe(target: str, before: Release, after: Release, gpu: str | None, world: int | None) -> Upgrade | Diagnostic:
    """Compare a recipe of one release with what another makes of it."""
    case, library = cases.read(target, gpu, world), load_stdlib()
    if isinstance(case, Report):
        return error("diff.input", f"{target}: {case.message}", help=case.help)
    hardware = machine(case, library)
    if hardware is None:
        return error("diff.input", f"{target}: no hardware `{case.device.name}` in the stdlib", help=choices())
    recipe: Recipe | Diagnostic | None = None
    unread: tuple[str, ...] = ()
    if is_installed() and environments.is_ready(before):
        with Server(1, before) as server:
            (built,) = server.resolve([case])
        if built.built:
            recipe = from_bridge(case, built, hardware, library)
        else:
            why = built.message or (built.refusal.message if built.refusal else "it built nothing")
            unread = (f"Bridge {before.bridge} does not build it: {why}",)
    if recipe is None:
        recipe = read(case, hardware, library)
    if isinstance(recipe, Diagnostic):
        return recipe
    return predicted(recipe, before, after, library, (*unread, *recipe.unread))


def predicted(
    recipe: Recipe, before: Release, after: Release, library: Library, unread: tuple[str, ...] = ()
) -> Upgrade:
    """Predict what a release makes of a recipe of another, by the tables."""
    now, then = before.bridge, after.bridge
    is_python = recipe.file.endswith(".py") and Path(recipe.file).is_file()
    text = foreign.parse_python_file(Path(recipe.file)) if is_python else None
    named = _mentioned(text) if text else None
    own = {path for path, at in recipe.places.items() if at and at[0][0] == recipe.file and _is_own(path, named)}
    values = {path: normalise(path, v) for path, v in recipe.stated.items() if path in fields.fields(now)}
    hf = recipe.get("model.hf_model_id")
    gone = [
        _gone(path, value, then, path in own) for path, value in values.items() if not _has(path, then, recipe.classes)
    ]
    changed: list[Change] = []
    for path, value in values.items():
        was, will = _table(path, now, recipe.classes, hf), _table(path, then, recipe.classes, hf)
        if path not in own and _has(path, then, recipe.classes) and was == value and will not in (was, UNKNOWN):
            changed.append(Change(path, value, will))
    refused = [*(_lost(text, now, then) if text else ())]
    refused += [
        f"{recipe.classes.get(c.field.partition('.')[0])} takes no `{c.field.rpartition('.')[2]}`"
        for c in gone
        if c.is_stated and text is not None and _is_keyword(text, c.field, recipe.classes)
    ]
    book, _ = read_rules(library)
    env = environment(recipe, book, PHASE)
    rules = (*book.of_recipe, *book.of_run, *(r for r in _of_release(library) if f".{ISSUES}." not in r.id))
    appear, disappear = _laws(rules, env, book.scope, now, then)
    refused += [f"{law.because} ({law.rule})" for law in appear if law.is_broken]
    issues = _issues(library, env, book.scope, then)
    new = [
        f
        for f in fields.fields(then).values()
        if f.path not in fields.fields(now) and _has(f.path, then, recipe.classes)
    ]
    return Upgrade(
        recipe.target, now, then, refused=tuple(refused), gone=tuple(gone), defaults=tuple(changed),
        appear=appear, disappear=disappear, issues=issues,
        keep=tuple(f"cfg.{c.field} = {c.now!r}" for c in changed if _is_plain(c.now)),
        unread=unread, new_fields=len(new), documents=after.documents,
    )  # fmt: skip


def _table(path: str, version: str, classes: Mapping[str, str], hf: str | None) -> Any:
    """Return a field's value in a release if nothing states it: AutoBridge's, or its class's default."""
    section, _, name = path.rpartition(".")
    given = fields.provided(hf, version) if section == "model" and hf else {}
    known = fields.lookup(path, version)
    value = given.get(name, UNKNOWN if known is None else known.others.get(classes.get(section, ""), known.default))
    return normalise(path, value)


def _has(path: str, version: str, classes: Mapping[str, str] | None = None) -> bool:
    """Whether a release has a field, in the class of its section if that is known."""
    known = fields.lookup(path, version)
    if known is None or not known.classes or classes is None:
        return fields.has(path, version)
    kind = classes.get(path.rpartition(".")[0], "")
    return kind in known.classes or not any(kind in f.classes for f in fields.fields(version).values())


def _gone(path: str, value: Any, version: str, is_stated: bool) -> Change:
    other = RENAMED.get(path, "")
    return Change(path, value, None, other if fields.has(other, version) else "", is_stated)


def _mentioned(text: ast.Module) -> set[str]:
    """Return the names that a source assigns or gives by keyword."""
    nodes = [*ast.walk(text)]
    return {n.attr for n in nodes if isinstance(n, ast.Attribute)} | {
        n.arg for n in nodes if isinstance(n, ast.keyword) and n.arg
    }


def _is_own(path: str, named: Collection[str] | None) -> bool:
    """Whether the source sets a field itself: the line that builds a whole section counts for none of its fields."""
    return named is None or path.rpartition(".")[2] in named


def _is_keyword(text: ast.Module, path: str, classes: Mapping[str, str]) -> bool:
    """Whether the source gives a field to the constructor of its section, which refuses a name that it lacks."""
    section, _, name = path.rpartition(".")
    calls = (n for n in ast.walk(text) if isinstance(n, ast.Call))
    return any(
        ast.unparse(c.func).rpartition(".")[2] == classes.get(section) and name in {k.arg for k in c.keywords}
        for c in calls
    )


@cache
def _names() -> Mapping[str, Any]:
    return json.loads((fields.DATA / "bridge_gone.json").read_text(encoding="utf-8"))


def _lost(text: ast.Module, now: str, then: str) -> Iterator[str]:
    """Yield each import of a source that a release no longer has, with the module that has the name now."""
    order = [r.bridge for r in KNOWN]
    between = [_names()[v] for v in order[order.index(now) + 1 : order.index(then) + 1] if v in _names()]
    imports = [n for n in ast.walk(text) if isinstance(n, ast.ImportFrom | ast.Import)]
    wanted = [(n.module or "", a.name, n.lineno) for n in imports if isinstance(n, ast.ImportFrom) for a in n.names]
    wanted += [(a.name, "", n.lineno) for n in imports if isinstance(n, ast.Import) for a in n.names]
    for module, name, line in wanted:
        for table in between:
            is_module = module in table["modules"] or f"{module}.{name}" in table["modules"]
            if is_module or name in table["names"].get(module, ()):
                place = table["moved"].get(name, "").partition(":")[0]
                yield f"line {line}: `{module}` has no `{name}`" + (f"; `{place}` has it" if place else "")
                break


# ---------------------------------------------------------------- a run of Megatron-LM


def of_read(recipe: Recipe, before: Release, after: Release) -> Upgrade:
    """Compare what a run's own file states, a `run_config.yaml` or a run of Megatron-LM, in two releases."""
    if recipe.arguments:
        return of_arguments(recipe, before, after)
    return predicted(recipe, before, after, load_stdlib(), recipe.unread)


def of_arguments(recipe: Recipe, before: Release, after: Release) -> Upgrade:
    """Say what a release makes of a run of Megatron-LM: its arguments, the rules over it, and its plans."""
    library = load_stdlib()
    told, now, then = predicted(recipe, before, after, library), _flags(before), _flags(after)
    lost = [a for a in recipe.given if a.flag in now and a.flag not in then]
    gone = tuple(Change(a.flag, a.value, None, _renamed(now[a.flag][0], then), is_stated=True) for a in lost)
    refused = (
        f"line {a.line}: no argument `{a.flag}` any more" + (f"; `{c.instead}` took its place" if c.instead else "")
        for a, c in zip(lost, gone, strict=True)
    )
    stated = {a.dest for a in recipe.given}
    both = ((flag, dest, default) for flag, (dest, default) in now.items() if flag in then and dest not in stated)
    changed = tuple(Change(flag, was, then[flag][1]) for flag, _, was in both if then[flag][1] not in (was, UNKNOWN))
    made = imported_arguments(recipe, library)
    plans = of_run(Source("run.moe", made.text), before.bridge, after) if made.text else (made.diagnostics, {})
    estimates = plans[0].estimates if isinstance(plans, list) else ()
    unplanned = () if isinstance(plans, list) else tuple(f"no plan: {d.message}" for d in plans[0] if d.is_error)
    return evolve(
        told, refused=(*refused, *told.refused), gone=gone, defaults=changed, estimates=estimates,
        keep=tuple(" ".join(map(str, _words(c))) for c in changed if _is_plain(c.now) and c.now is not None),
        unread=(*recipe.unread, *unplanned), new_fields=len(then.keys() - now.keys()),
    )  # fmt: skip


def _words(change: Change) -> tuple[str, ...]:
    """Write the argument that keeps a default."""
    known = megatron_arguments.by_flag().get(change.field)
    return known.words(change.now) or (change.field,) if known else (change.field, str(change.now))


def _flags(release: Release) -> Mapping[str, tuple[str, Any]]:
    """Return a release's flags; those of a release without a wheel are the newest's, less the fields that are gone."""
    if not release.documents:
        return megatron_arguments.flags(release.core)
    out: dict[str, tuple[str, Any]] = {}
    for flag, (dest, default) in megatron_arguments.flags(megatron_arguments.core()).items():
        paths = megatron_arguments.by_flag()[flag].fields
        if not any(fields.has(path, LATEST) and not fields.has(path, release.bridge) for path in paths):
            out[flag] = dest, default
    news = {new for new in RENAMED.values() if fields.has(new, release.bridge) and not fields.has(new, LATEST)}
    return out | {f"--{name.replace('_', '-')}": (name, UNKNOWN) for name in (n.rpartition(".")[2] for n in news)}


def _renamed(dest: str, flags: Mapping[str, tuple[str, Any]]) -> str:
    """Return the flag that took the place of an argument: of the same value, or of the field's new name."""
    names = {dest, *(new.rpartition(".")[2] for old, new in RENAMED.items() if old.rpartition(".")[2] == dest)}
    return next((flag for flag, (name, _) in flags.items() if name in names), "")


# ---------------------------------------------------------------- rules


def _laws(
    rules: Iterable[Rule], env: Mapping[str, Any], scope: Container[str], now: str, then: str
) -> tuple[tuple[Law, ...], tuple[Law, ...]]:
    """Return the laws that appear and that disappear between two releases, of those that are about this run."""
    found: tuple[list[Law], list[Law]] = [], []
    for r in rules:
        if r.kind == "require" and (r.since or r.until):
            before, after = (_judged(r, env, scope, v) for v in (now, then))
            if before is None and after is not None:
                found[0].append(_law(r, after))
            elif before is not None and after is None:
                found[1].append(_law(r, before))
    return tuple(found[0]), tuple(found[1])


def _judged(r: Rule, env: Mapping[str, Any], scope: Container[str], version: str) -> bool | None:
    """Whether a layout obeys a rule in a release; None if the rule does not hold there, is not about this layout, or
    asks for a value that is not known."""
    values = {**env, BRIDGE: as_number(version)}
    if not all(n in values or n not in scope for n in r.reads) or not r.applies(values):
        return None
    obeys, premise = holds(r.expr, values), _premise(r.expr)
    return obeys if not obeys or (premise is not None and holds(premise, values)) else None


def _premise(e: moe.Expr) -> moe.Expr | None:
    """Return what makes a law be about a layout: A of `A => B`, and A of `not (A and B)`."""
    if isinstance(e, moe.Binary) and e.op == "=>":
        return e.left
    inside = e.value if isinstance(e, moe.Unary) and e.op == "not" else None
    while isinstance(inside, moe.Binary) and inside.op == "and":
        inside = inside.left
    return inside


def _law(r: Rule, obeys: bool) -> Law:
    return Law(r.id, r.because or "", r.cites, not obeys)


def _issues(library: Library, env: Mapping[str, Any], scope: Container[str], version: str) -> tuple[Law, ...]:
    """Return the known issues of a release that the layout meets."""
    rules = (r for r in _of_release(library) if f".{ISSUES}." in r.id)
    return tuple(_law(r, False) for r in rules if _judged(r, env, scope, version) is False)


def _of_release(library: Library) -> list[Rule]:
    blocks = [(p, b) for p, b in library.rules if b.subject is not None and b.subject.id == SUBJECT]
    return [read_rule(prefix, b, m, []) for prefix, b in blocks for m in b.members]


# ---------------------------------------------------------------- text


def text(u: Upgrade) -> str:
    """Print what a release changes, most pressing first."""
    first = f"{u.name}: Bridge {u.source} -> {u.target}"
    head = [first + (f", which has no wheel: by its {u.documents}" if u.documents else "")]
    stated = [f"{c.field}: " + _new_place(c) for c in u.gone if c.is_stated]
    left = [c.field for c in u.gone if not c.is_stated]
    groups = {
        "Refused as it is": u.refused,
        "Fields that are gone": [*stated, *([f"not stated here: {', '.join(left)}"] if left else [])],
        "Defaults that change under it": [f"{c.field}: {_moe(c.now)} -> {_moe(c.then)}" for c in u.defaults],
        "Laws that appear": [f"{'BROKEN ' * w.is_broken}{short(w.rule)}: {w.because}" for w in u.appear],
        "Laws that go": [f"{short(w.rule)}: {w.because}" for w in u.disappear],
        "Known issues that it meets": [f"{w.because} ({'; '.join(w.cites)})" for w in u.issues],
        "Estimate": _compared(u.estimates),
        "To keep the old behaviour": u.keep,
        "Not read": u.unread,
    }
    told = [titled(title, (wrapped(line) for line in lines)) for title, lines in groups.items() if lines]
    news = f"{u.target} has {u.new_fields} fields that {u.source} has not, each at its default."
    return "\n\n".join([*head, *told, *([news] if u.new_fields else []), *([] if told else ["Nothing changes."])])


def _new_place(c: Change) -> str:
    return f"`{c.instead}` took its place" if c.instead else "nothing reads it any more"


def _compared(both: Sequence[Estimate]) -> list[str]:
    if len(both) < 2:
        return []
    lines = [f"{e.bridge}: {e.seconds:.2f} s a step, {e.peak_gib:.1f} GiB, {e.fits}" for e in both]
    moved = {n: (v, both[1].layout[n]) for n, v in both[0].layout.items() if both[1].layout.get(n, v) != v}
    best = ", ".join(f"{n} {show(a)} -> {show(b)}" for n, (a, b) in moved.items()) or "the same layout"
    return [*lines, f"best there: {best}; speed and memory are fitted to runs of {LATEST} and not corrected by release"]


def _is_plain(value: Any) -> bool:
    return value is None or isinstance(value, bool | int | float | str)


def _moe(value: Any) -> str:
    """Write a value as a run file does."""
    return "none" if value is None else json.dumps(value) if _is_plain(value) else str(value)
