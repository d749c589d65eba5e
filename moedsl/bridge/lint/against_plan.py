"""Compare what the source of a recipe states with the plan next to it, and run nothing: `moedsl verify --read-only`."""

from __future__ import annotations

from moedsl.bridge.lint.run import machine
from moedsl.bridge.lint.static import read
from moedsl.bridge.verify import cases
from moedsl.bridge.verify.cases import choices
from moedsl.bridge.verify.expected import checks
from moedsl.bridge.verify.report import Mismatch, Report, failed
from moedsl.compiler import load_stdlib

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
    recipe, found = read(c, hardware, library)
    if recipe is None:
        return failed(target, "verify.input", found[0].message, "; ".join(found[0].help))
    planned = [*checks(c.plan)]
    stated = [check for check in planned if check[0] in recipe.fields]
    differ = [Mismatch(f, value, recipe.fields[f]) for f, value, holds in stated if not holds(recipe.fields[f])]
    said = f"{len(stated)} of {len(planned)} decided fields are in the source; {UNASKED}"
    return Report(target, "read", mismatches=tuple(differ), read=(said, *recipe.unread))
