"""Lint recipes, with the real Bridge if it is installed and may run them; also `moedsl verify --read-only`."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from attrs import evolve

from moedsl.bridge.fields import of_plan, of_recipe
from moedsl.bridge.lint import rules
from moedsl.bridge.lint.facts import Recipe, stdlib_facts
from moedsl.bridge.lint.report import Lines, Lint, report
from moedsl.bridge.lint.rules import Book
from moedsl.bridge.lint.source import read
from moedsl.bridge.verify import cases
from moedsl.bridge.verify.cases import Case, Mismatch, Report, choices, failed
from moedsl.bridge.verify.client import Server, is_installed
from moedsl.bridge.verify.resolve import Resolved
from moedsl.compiler import load_stdlib
from moedsl.facts.facts import Hardware
from moedsl.rules.library import Library
from moedsl.support.diagnostics import Diagnostic, Label, error

PHASE = "throughput"
"""The phase whose advice applies unless the user names another one: throughput, as for a tuned run."""


def lint(
    targets: Sequence[str],
    gpu: str | None = None,
    world: int | None = None,
    phase: str = PHASE,
    read_only: bool = False,
    read_own: Callable[[str], Recipe | tuple[Diagnostic, ...] | None] = lambda _: None,
) -> list[Lint]:
    """Lint each target (FILE, FILE:function, module:function, or a run's own file); with `read_only`, run none of them.

    `read_own` reads a run's own file (run_files.py), and returns None for another target.
    """
    library = load_stdlib()
    book, wrong = rules.read_rules(library)
    read = [read_own(t) or _case(t, gpu, world) for t in targets]
    known = [c for c in read if isinstance(c, Case)]
    answers: list[Resolved] = []
    if known and not read_only and is_installed():
        with Server(min(2, len(known))) as server:
            answers = server.resolve(known)
    resolved = iter(answers or [None] * len(known))
    out = [
        one(c, next(resolved), book, library, phase)
        if isinstance(c, Case)
        else _of_file(target, c, book, library, phase)
        if not isinstance(c, Report)
        else _failed(target, c.id, c.message, c.help)
        for target, c in zip(targets, read, strict=True)
    ]
    own = tuple(d for d in wrong if d.is_error)
    return [evolve(x, diagnostics=(*own, *x.diagnostics), sources={**library.sources, **x.sources}) for x in out]


def _of_file(target: str, found: Recipe | tuple[Diagnostic, ...], book: Book, library: Library, phase: str) -> Lint:
    """Lint a run's own file."""
    if isinstance(found, Recipe):
        return report(found, rules.judge(found, book, phase), None, library.sources)
    lines = Lines()
    lines.read(target)
    return Lint(target, found, through_bridge=False, sources=lines.sources)


def _case(target: str, gpu: str | None, world: int | None) -> Case | Report:
    path = target.partition(":")[0]
    if path.endswith(".moe"):
        help = f"`moedsl check {path}` judges it, and `moedsl verify {path}` asks Bridge about its recipe"
        return failed(target, "verify.input", "a run file is not a recipe", help)
    if path.endswith(".json"):
        return failed(target, "verify.input", "JSON is not a recipe", "name the recipe.py, or the folder that has it")
    return cases.read(target, gpu, world)


def one(c: Case, resolved: Resolved | None, book: Book, library: Library, phase: str = PHASE) -> Lint:
    """Lint one recipe, as Bridge built it or, if `resolved` is None, from its source."""
    if resolved is not None and resolved.id:
        lines = Lines()
        labels = [lines.label((resolved.source, resolved.line), c.function, "")] if resolved.source else []
        found = _failed(c.file, resolved.id, resolved.message, resolved.help, *labels)
        return evolve(found, sources=lines.sources)
    hardware = machine(c, library)
    if hardware is None:
        return _failed(c.file, "verify.input", f"no hardware `{c.device.name}` in the stdlib", choices())
    refusal = resolved.refusal if resolved else None
    if resolved is None or (refusal and refusal.lacks_configuration and not resolved.built):
        recipe = read(c, hardware, library)
        if isinstance(recipe, Diagnostic):
            return Lint(c.file, (recipe,), through_bridge=False)
    else:
        recipe = from_bridge(c, resolved, hardware, library)
    return report(recipe, rules.judge(recipe, book, phase), refusal, library.sources)


def from_bridge(c: Case, resolved: Resolved, hardware: Hardware, library: Library) -> Recipe:
    """Return the recipe as built, plus the fields that only Bridge's update makes, such as a mixed precision given by
    name."""
    fields = {**{n: v for n, v in resolved.resolved.items() if n not in resolved.built}, **resolved.built}
    places = {n: tuple((str(f), int(line)) for f, line in p) for n, p in resolved.places.items()}
    facts = stdlib_facts(fields.get("model.hf_model_id"), library)
    return Recipe(
        target=c.file, function=resolved.function, file=resolved.source, line=resolved.line,
        fields=fields, hardware=hardware, world=c.world, settled=resolved.resolved,
        classes=resolved.classes, places=places, asked=resolved.asked, whole=bool(resolved.built),
        model=facts, unknown=resolved.unknown,
    )  # fmt: skip


def machine(c: Case, library: Library) -> Hardware | None:
    """Find the stdlib's facts of a case's GPU by its device name."""
    return library.gpu_called(c.device.name)


def _failed(file: str, id: str, message: str, help: str | tuple[str, ...] = (), *labels: Label) -> Lint:
    return Lint(file, (error(id, f"{file}: {message}", *labels, help=help or ()),))


UNASKED = "nothing was run: whether Megatron Bridge builds the recipe, and what it makes of it, is not known"


def against_plan(target: str, gpu: str | None = None, world: int | None = None) -> Report:
    """Read a recipe and compare the fields that both it and its plan decide."""
    library = load_stdlib()
    c = cases.read(target, gpu, world)
    if isinstance(c, Report):
        return c
    if c.plan is None:
        help = "`moedsl lint --read-only` judges a recipe by the rules"
        return failed(target, "verify.input", "there is no plan.json next to it to compare with", help)
    hardware = machine(c, library)
    if hardware is None:
        return failed(target, "verify.input", f"no hardware `{c.device.name}` in the stdlib", choices())
    recipe = read(c, hardware, library)
    if isinstance(recipe, Diagnostic):
        return failed(target, "verify.input", recipe.message, "; ".join(recipe.help))
    planned, read_fields = of_plan(c.plan), of_recipe(recipe.stated, recipe.classes)
    stated = [f for f in planned if f in read_fields]
    differ = [Mismatch(f, planned[f], read_fields[f]) for f in stated if read_fields[f] != planned[f]]
    compared = f"{len(stated)} of {len(planned)} decided fields are in the source; {UNASKED}"
    return Report(target, "read", mismatches=tuple(differ), read=(compared, *recipe.unread))
