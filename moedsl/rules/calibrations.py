"""Read the constants of a generation of GPUs: what `calibration any` declares, and what its own calibration states."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from moedsl.facts import calibration
from moedsl.facts.calibration import Constant, Constants
from moedsl.facts.symbols import ARCHS
from moedsl.lang import ast
from moedsl.rules.declarations import Block, cited
from moedsl.rules.interpreter import number
from moedsl.support.diagnostics import Diagnostic, error, suggest

EVERY = "any"
"""The calibration that declares each constant, and whose values hold where a generation states none."""


def constants(
    calibrations: Mapping[str, ast.CalibrationDecl], arch: str, replaced: Mapping[str, ast.CalibrationDecl] = {}
) -> tuple[Constants | None, list[Diagnostic]]:
    """Read the constants of an architecture, each in its range; of `EVERY`, those that are declared, with units of the
    same kind as in a declaration that it replaces."""
    every, own = calibrations[EVERY], calibrations.get(arch)
    found: list[Diagnostic] = []
    known = _declared(every, _declared(replaced[EVERY], {}, []) if EVERY in replaced else {}, found)
    if found:
        return None, found
    if missing := [name for name in calibration.NAMES if name not in known]:
        found.append(error("check.missing_fact", f"calibration {EVERY} needs {', '.join(missing)}", every.name.span))
    stated = _stated(own, known, found) if own and own is not every else {}
    if found:
        return None, found
    made, at = calibration.made(known, stated), (own or every).name
    wrong = calibration.outside(made)
    return made, [error("check.calibration", f"calibration {at.id}: {w}", at.span) for w in wrong]


def _declared(
    every: ast.CalibrationDecl, replaced: Mapping[str, Constant], found: list[Diagnostic]
) -> dict[str, Constant]:
    out: dict[str, Constant] = {}
    for e in every.facts:
        if not _known(e.name, calibration.NAMES, found):
            continue
        if not isinstance(e.value, tuple):
            message = f"`{e.name.id}` is declared by a block: `{e.name.id} {{ value ...; unit ... }}`"
            help = (f"state its value in the calibration of an architecture: {', '.join(ARCHS)}",)
            found.append(error("check.type", message, e.name.span, help=help))
            continue
        entries = tuple(v for v in e.value if isinstance(v, ast.FactEntry))
        filled = {"name": e.name.id, "source": cited(e)}
        made = Block(Constant, f"constant {e.name.id}", found).read(entries, filled, e.name)
        if made is not None:
            out[e.name.id] = made
            found += _wrong(made, replaced.get(e.name.id), entries, e.name)
    return out


def _wrong(
    c: Constant, before: Constant | None, entries: Sequence[ast.FactEntry], at: ast.Name
) -> Iterator[Diagnostic]:
    """Report units of another kind, and numbers that contradict each other."""
    for e in entries:
        if isinstance(e.value, ast.Number) and e.value.unit and not _percent(e.value, c.unit, e.name.id == "spread"):
            yield error("check.type", f"`{e.name.id}` must be a number without a unit, in {c.unit}", e.value.span)
    yield from (error("check.calibration", f"`{c.name}`: {text}", at.span) for text in calibration.wrong(c, before))


def _percent(n: ast.Number, unit: str, spread: bool = False) -> bool:
    return n.unit == "%" and (spread or unit in calibration.RATIOS)


def _stated(decl: ast.CalibrationDecl, known: Mapping[str, Constant], found: list[Diagnostic]) -> dict[str, float]:
    """Read what a generation states, in the units of its constants."""
    out: dict[str, float] = {}
    for e in decl.facts:
        if not _known(e.name, known, found):
            continue
        if e.name.id in out:
            found.append(error("check.twice", f"`{e.name.id}` is stated twice", e.name.span))
            continue
        unit = known[e.name.id].unit
        if not isinstance(e.value, ast.Number) or not (e.value.unit in (None, unit) or _percent(e.value, unit)):
            found.append(error("check.type", f"`{e.name.id}` must be a number, in {unit}", e.name.span))
        else:
            out[e.name.id] = e.value.value if e.value.unit == unit else float(number(e.value))
    return out


def _known(name: ast.Name, known: Mapping[str, Constant] | tuple[str, ...], found: list[Diagnostic]) -> bool:
    if name.id not in known:
        message = f"a calibration has no fact `{name.id}`"
        found.append(error("check.unknown_fact", message, name.span, help=suggest(name.id, list(known))))
    return name.id in known
