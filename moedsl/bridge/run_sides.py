"""Read each side of `moedsl diff` (run file, compiled folder, plan or recipe) into values by name."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from attrs import field, frozen

from moedsl.bridge import run_files
from moedsl.bridge.fields import of_plan, of_recipe
from moedsl.bridge.lint.facts import Recipe
from moedsl.bridge.lint.run import machine
from moedsl.bridge.lint.source import read
from moedsl.bridge.recipe_import import of_arguments
from moedsl.bridge.verify import cases
from moedsl.bridge.verify.cases import Case, Report, choices
from moedsl.bridge.verify.client import Server, is_installed
from moedsl.bridge.verify.resolve import Resolved
from moedsl.compiler import compile_source, load_stdlib
from moedsl.facts.recipes import LIKE
from moedsl.lang import reader
from moedsl.planner.plan import Plan
from moedsl.rules.rule import Rule
from moedsl.solver.solve import Chosen
from moedsl.support import foreign
from moedsl.support.diagnostics import Diagnostic, error, suggest
from moedsl.support.files import COMPILE_AGAIN as AGAIN
from moedsl.support.files import mixed
from moedsl.support.foreign import text_of
from moedsl.support.source import Source

HELP = (
    "give a .moe file (FILE:run), a compiled folder, plan.json, recipe.py, module:function or a script of Megatron-LM"
)


@frozen
class Side:
    """One side of a comparison. `plan` is None if only Bridge's fields are known."""

    name: str
    how: str
    """The kind of input: plan, recipe (as Bridge built it) or source (only read)."""
    fields: Mapping[str, Any]
    """Bridge's fields by dotted path, normalised for comparison."""
    whole: bool = False
    """Whether every field of the configuration is in `fields`."""
    plan: Plan | None = None
    chosen: Chosen | None = None
    """The solver's result, if the side was planned by this command."""
    rules: tuple[Rule, ...] = ()
    """The rules of the run's program; they give the effects of differences."""
    unread: tuple[str, ...] = ()
    refused: str | None = None
    """The message of Bridge's runtime_config_update if it refused the recipe."""
    as_built: bool = False
    """Whether `fields` are the recipe's values before runtime_config_update."""
    stated: Mapping[str, Any] = field(factory=dict)
    """The fields that the recipe's source sets, with the values that it assigns."""


@frozen
class Options:
    """How to read a recipe: its GPU and world size if it has no plan, and `read_only` to keep Bridge from running
    it."""

    gpu: str | None = None
    world: int | None = None
    read_only: bool = False
    given: Mapping[str, str] = field(factory=dict)
    """The variables of a script."""


@frozen
class Wrong:
    """The errors of a target that cannot be read; `sources` are the texts that the diagnostics point into."""

    diagnostics: tuple[Diagnostic, ...]
    sources: Mapping[str, Source] = field(factory=dict)


Found = Side | Case | Wrong
"""A side, a recipe that Bridge must still resolve, or the errors."""


def read_sides(
    targets: Sequence[str], texts: Sequence[str] = (), options: Options = Options(), server: Server | None = None
) -> list[Side | Wrong]:
    """Read the targets, then the program texts, into sides or errors. All recipes share one Bridge server."""
    found = [one(t, options) for t in targets]
    for text in texts:
        source, wrong = reader.from_text(text, "<text>")
        found.append(Wrong(wrong) if source is None else _of_source(source, "<text>", ""))
    recipes = [c for c in found if isinstance(c, Case)]
    if not recipes or options.read_only or not (server or is_installed()):
        made = iter([_read(c) for c in recipes])
    else:
        with ExitStack() as stack:
            if server is None:
                print("starting the real Megatron Bridge (about ten seconds)", file=sys.stderr, flush=True)
                server = stack.enter_context(Server(min(2, len(recipes))))
            made = iter(resolved(recipes, server.resolve(recipes)))
    return [next(made) if isinstance(f, Case) else f for f in found]


def one(target: str, options: Options) -> Found:
    """Read one target without running Bridge; a recipe becomes a Case."""
    path, _, name = target.partition(":")
    if path.endswith(".moe") or target == "-":
        source, found = reader.read(target if target == "-" else path)
        return Wrong(found) if source is None else _of_source(source, target, name)
    if path.endswith(".json") and not os.path.isdir(path):
        return _of_plan_file(Path(path), target)
    if os.path.isdir(path):
        folder = Path(path)
        if (folder / "plan.json").is_file():
            return _of_plan_file(folder / "plan.json", target)
        below = sorted(p.parent.name for p in folder.glob("*/plan.json"))
        if below:
            return _wrong(f"{target} has several runs: {', '.join(below)}", f"name one: `{folder / below[0]}`")
    library = load_stdlib()
    machines = (options.gpu or "h100", options.world or 1) if target.endswith((".yaml", ".yml")) else None
    own = run_files.read(target, options.gpu, options.world, library, options.given)
    if machines and isinstance(own, tuple) and own[0].id == "import.recipe":  # fields alone need no machines
        own = run_files.read(target, *machines, library, options.given)
    if isinstance(own, Recipe) and own.arguments:
        made = of_arguments(own, library)
        name = f"{target} (imported)"
        return Wrong(made.diagnostics) if made.text is None else _of_source(Source(name, made.text), target, "")
    if isinstance(own, Recipe):
        fields = of_recipe(own.settled, own.classes)
        return Side(target, "run", fields, whole=True, stated=fields)
    if own is not None:
        return Wrong(own)
    case = cases.read(target, options.gpu, options.world)
    return _wrong(f"{target}: {case.message}", case.help or HELP) if isinstance(case, Report) else case


def beside(target: str, text: str | None, like: str) -> list[Side | Wrong]:
    """Read a program twice: as it is, and with the layout of Bridge's recipe `like`."""
    path, _, name = target.partition(":")
    if text is None and not (path.endswith(".moe") or target == "-"):
        return [_wrong(f"{target} is not a .moe file", HELP)]
    source, found = reader.from_text(text, target) if text is not None else reader.read(path)
    if source is None:
        return [Wrong(found)]
    return [_of_source(source, target, name), _of_source(source, f"{target} {LIKE}{like}", name, like)]


def _wrong(text: str, help: str | tuple[str, ...] = HELP) -> Wrong:
    return Wrong((error("diff.input", text, help=help),))


def _of_source(source: Source, target: str, name: str, like: str = "") -> Side | Wrong:
    result = compile_source(source, like=like)
    if result.failed:
        errors = tuple(d for d in result.diagnostics if d.is_error)
        return Wrong(errors, result.sources)
    names = [p.name for p in result.plans]
    if not name and len(names) > 1:
        help = tuple(f"write `{target}:{n}`" for n in names[:3])
        return _wrong(f"{target} has {len(names)} runs: {', '.join(names)}", help)
    if name and name not in names:
        return _wrong(f"{target}: no run is called `{name}`", suggest(name, names) or f"it has {', '.join(names)}")
    at = names.index(name) if name else 0
    chosen, plan = result.chosen[at], result.plans[at]
    rules = chosen.problem.program.rules
    return Side(target, "plan", of_plan(plan), plan=plan, chosen=chosen, rules=rules)


def _of_plan_file(path: Path, target: str) -> Side | Wrong:
    if wrong := mixed(path.parent):
        return _wrong(f"{target}: {wrong}", AGAIN)
    try:
        data = foreign.load_json(text_of(path))
    except OSError as e:
        why = "does not exist" if isinstance(e, FileNotFoundError) else f"cannot be read: {e.strerror}"
        return _wrong(f"{path} {why}", HELP)
    except ValueError as e:
        return _wrong(f"{path} cannot be read as JSON: {e}")
    try:
        plan = Plan.from_json(data)
    except ValueError as e:
        text = f"{path} is not the plan of one run: {e}"
        return _wrong(text, "write one with `moedsl plan FILE --json` or `moedsl compile`")
    return Side(target, "plan", of_plan(plan), plan=plan)


def resolved(wanted: Sequence[Case], answers: Sequence[Resolved]) -> list[Side | Wrong]:
    """Make sides from recipes after Bridge's update. If Bridge refuses one, use all of them as built, so that they stay
    comparable."""
    as_built = any(r.refusal for r in answers)
    out: list[Side | Wrong] = []
    for c, r in zip(wanted, answers, strict=True):
        if r.id or not r.built:
            message = r.message or (r.refusal.message if r.refusal else "Bridge built nothing")
            out.append(_wrong(f"{c.file}: {message}"))
            continue
        fields = of_recipe(r.built if as_built else r.resolved, r.classes)
        refused = " ".join(r.refusal.message.split()) if r.refusal else None
        own = _read(c)
        stated = own.stated if isinstance(own, Side) else {}  # an unreadable source states no fields
        out.append(Side(c.file, "recipe", fields, whole=True, refused=refused, as_built=as_built, stated=stated))
    return out


def _read(c: Case) -> Side | Wrong:
    """Read a recipe's side from its source, without Bridge."""
    library = load_stdlib()
    hardware = machine(c, library)
    if hardware is None:
        help = f"{choices()}, or install Megatron Bridge"
        return _wrong(f"{c.file}: no hardware `{c.device.name}` in the stdlib", help)
    recipe = read(c, hardware, library)
    if isinstance(recipe, Diagnostic):
        return Wrong((recipe,))
    fields = of_recipe(recipe.stated, recipe.classes)
    return Side(c.file, "source", fields, unread=recipe.unread, stated=fields)
