"""`moedsl lint`, `moedsl diff` and `moedsl import`: check, compare and read existing recipes."""

from __future__ import annotations

import sys
from argparse import Namespace
from functools import partial
from pathlib import Path

from moedsl.cli import console
from moedsl.cli.terminal import Refused, coloured
from moedsl.compiler import load_stdlib
from moedsl.support.diagnostics import error, to_json
from moedsl.support.files import refusals
from moedsl.support.render import render_all
from moedsl.support.text import visible


def lint(a: Namespace) -> int:
    """Check a Bridge recipe against every rule. Exit 1 if a law is broken or Bridge refuses it."""
    from moedsl.bridge import run_files
    from moedsl.bridge.lint.report import Lint, merged
    from moedsl.bridge.lint.run import lint

    library, given = load_stdlib(), console.variables(a)
    own = partial(run_files.read, gpu=a.gpu, world=a.world, library=library, given=given)
    found = lint(a.files, a.gpu, a.world, a.phase, a.read_only, own)
    colour = coloured(sys.stdout)

    def counted(x: Lint, severity: str) -> str:
        n = sum(d.severity == severity for d in x.diagnostics)
        return f"{n or 'no'} {severity}{'' if n == 1 else 's'}"

    def text(x: Lint) -> str:
        """Format the diagnostics of one recipe, then how many rules applied."""
        shown = render_all([to_json(d, x.sources) for d in x.diagnostics], colour=colour)
        counts = ", ".join(counted(x, severity) for severity in ("error", "warning", "note"))
        asked = f"{x.file}: {counts}; {x.judged} rules applied"
        if x.inherited:
            asked += f", {len(x.inherited)} in the base recipe"
        if x.unjudged:
            asked += f", {x.unjudged} could not be evaluated"
        why = "nothing was run" if a.read_only else "Megatron Bridge is not installed or did not build it"
        how = [] if x.through_bridge else [f"read from its source; {why}"]
        said = visible("\n".join([asked, *(f"  {line}" for line in [*how, *x.unread])]))
        return f"{shown}\n{said}" if shown else said

    if a.sarif:
        console.print_sarif(d for x in found for d in x.to_json()["diagnostics"])
    elif a.json:
        console.print_json([x.to_json() for x in found])
    else:
        sources = {name: source for x in found for name, source in x.sources.items()}
        inherited = render_all([to_json(d, sources) for d in merged(found)], colour=colour)
        head = "\nAdvice that comes with the base recipe:\n\n" if inherited else ""
        console.print_text(lambda: "\n".join(filter(None, (*map(text, found), f"{head}{inherited}"))), painted=True)
    return int(any(x.failed for x in found))


def diff(a: Namespace) -> int:
    """Compare two experiments. Exit 1 for a wrong input; with --exit-code also if they differ."""
    from moedsl.bridge.diff import compare, text
    from moedsl.bridge.run_sides import Options, Side, Wrong, beside, read_sides

    texts = a.expression or []
    given = len(a.sides) + len(texts)
    if given != (1 if a.like else 2):
        two = "give two sides: moedsl diff A B, or -e 'TEXT' in place of one or both"
        print("give one program: moedsl diff FILE --like RECIPE" if a.like else two, file=sys.stderr)
        return 1
    if a.like:
        found = beside(*(("<text>", texts[0]) if texts else (a.sides[0], None)), a.like)
    else:
        found = read_sides(a.sides, texts, Options(a.gpu, a.world, a.read_only, console.variables(a)))
    left, right = found[0], found[-1]
    if not isinstance(left, Side) or not isinstance(right, Side):
        wrong = [f for f in found if isinstance(f, Wrong)]
        sources = {name: source for w in wrong for name, source in w.sources.items()}
        raise Refused((d for w in wrong for d in w.diagnostics), sources)
    compared = compare(left, right)
    console.print_answer(a, compared.to_json(), lambda: text(compared), end="")
    return int(a.exit_code and compared.verdict.same_experiment is not True)


def upgrade(a: Namespace) -> int:
    """Say what another release changes for a run or a recipe. Exit 1 if the release refuses it as it is."""
    from moedsl.bridge import run_files
    from moedsl.bridge import upgrade as of
    from moedsl.compiler import load_stdlib
    from moedsl.facts.releases import KNOWN, default, named

    asked = vars(a)["from"]
    before, after = named(asked) if asked else default(), named(a.to)
    for version, release in ((asked, before), (a.to, after)):
        if release is None:
            known = ", ".join(r.bridge for r in KNOWN)
            raise Refused([error("check.target:unsupported", release=version, known=known)])
    assert before is not None and after is not None
    if a.target is None or a.target.endswith(".moe"):
        source = console.source_of(Namespace(file=a.target, expression=a.expression))
        found = of.of_run(source, before.bridge if asked else "", after, a.run)
    else:
        read = run_files.read(a.target, a.gpu, a.world, load_stdlib(), console.variables(a))
        if isinstance(read, tuple):
            raise Refused(read, console.sources_of(a.target))
        made = of.of_read(read, before, after) if read else of.of_recipe(a.target, before, after, a.gpu, a.world)
        found = [made] if isinstance(made, of.Upgrade) else ((made,), {})
    if isinstance(found, tuple):
        raise Refused(*found)
    console.print_answer(a, [u.to_json() for u in found], lambda: "\n\n".join(map(of.text, found)))
    return int(any(u.refused for u in found))


def import_(a: Namespace) -> int:
    """Write the program of an existing recipe. Exit 1 if it cannot be read."""
    from moedsl.bridge.recipe_import import imported

    console.stop_on(refusals(Path(a.output), "import", force=a.force) if a.output else ())
    words = [a.recipe, *a.command] if a.command else []
    made = imported(a.recipe, a.gpu, a.world, console.variables(a), words)
    sources = console.sources_of(a.recipe)
    if made.text is None:
        raise Refused(made.diagnostics, sources)
    pins = made.pins.splitlines() if a.open else ()
    text = "".join(line for line in made.text.splitlines(keepends=True) if line.strip() not in pins)
    console.say(made.diagnostics, sources)
    data = {"program": text, "diagnostics": [to_json(d, {}) for d in made.diagnostics]}
    return console.put_out(a, text, f"; `moedsl plan {a.output}` prices it", data)
