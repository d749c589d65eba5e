"""Report that no layout fits: as a diagnostic, and as the JSON of an explanation."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from moedsl.facts.machines import MOST_GPUS
from moedsl.facts.symbols import AXES, HARDWARE
from moedsl.lang.printer import print_expr
from moedsl.solver.infeasible.analyse import Infeasible, analyse, laws_of, named
from moedsl.solver.infeasible.more_gpus import MOST_TIMES
from moedsl.solver.infeasible.relax import as_json as relaxation_json
from moedsl.solver.infeasible.relax import opened
from moedsl.solver.members import Member, as_json, read_by, reads_hardware, sizes, wish_text
from moedsl.solver.solve import Chosen
from moedsl.support.diagnostics import Diagnostic, Label, error
from moedsl.support.source import Source, place_of

TOO_LARGE = "in every layout the most loaded rank needs more memory than its GPU has"


def diagnostic(x: Infeasible) -> Diagnostic:
    """Make one error: the conflict with its spans, and the changes that resolve it as help."""
    help = tuple(r.text for r in x.relaxations) or tuple(no_single_change(x))
    fixes = tuple(f for r in x.relaxations for f in r.fixes)
    laws = x.laws
    if x.legal:
        id = "solve.too_slow" if x.too_slow else "solve.does_not_fit"
        because = None if x.too_slow or x.above_limit else TOO_LARGE
        return error(id, message(x), *_labels(x), help=help, because=because, values=x.values.by_name, fixes=fixes)
    because, cites = (laws[0].because, laws[0].cites) if laws else (None, ())
    id = laws[0].id if laws else "solve.conflict"
    more = {"because": because, "cites": cites, "values": x.values.by_name, "fixes": fixes}
    return error(id, message(x), *_labels(x), help=help, **more)


def message(x: Infeasible) -> str:
    """Name the conflict in one line."""
    wishes = [named(m) for m in x.core if m.is_negotiable]
    if not x.legal:
        more = "".join(f"; {collision(x, core)}" for core in x.others) + (f"; {x.still_none}" if x.still_none else "")
        return f"no layout of {_where(x)} is legal: {collision(x, x.core)}{x.values.summary}{more}"
    within = f" with {', '.join(wishes)}" if wishes else ""
    if x.too_slow:
        return f"no layout of {_where(x)} takes the required time{within}: {x.values.summary}"
    return f"no layout of {_where(x)} fits{within or ' in memory'}: {x.values.summary}"


def collision(x: Infeasible, core: Sequence[Member]) -> str:
    """Name the members of a conflict."""
    p = x.chosen.problem.program
    stated = [wish_text(m) for m in core if m.stated] + [s.text for s in sizes(p, core)]
    named = [*stated, *(m.key for m in core if m.kind in ("law", "candidates"))]
    return f"{', '.join(named)} {'collide' if len(named) > 1 else 'cannot hold'}"


def no_single_change(x: Infeasible) -> Iterator[str]:
    """Advise if no single change is enough: changes that are enough together, and the reason for each conflict."""
    count = len(x.conflicts) + bool(x.still_none)
    several = count > 1
    what = f"these {count} conflicts must be resolved together" if several else "several are needed"
    p = x.chosen.problem.program
    read = read_by(p, x.core)
    if x.together is None and read and not read & {"gpus", *HARDWARE, *AXES, "seq", "global_batch"}:
        stated = ", ".join(f"`{n}`" for n in sorted(read & p.spans.keys()))
        yield f"no layout and no number of GPUs resolves this: change what the run states of {stated}"
    elif x.together is None:
        yield (
            f"no single change opens a layout; up to {MOST_TIMES} times the GPUs without pins and requirements are not "
            "enough either: shorten the sequence, or use GPUs with more memory"
        )
    else:
        *most, last = x.together.changes
        changes = f"{', '.join(most)} and {last}" if most else last
        yield f"no single change opens a layout: {what}, for example with {changes} ({opened(x.together.opens)})"
    for core in x.conflicts if several else ():
        why = "; ".join(f"{r.because} ({', '.join(r.cites)})" for r in laws_of(core) if r.because)
        yield f"{collision(x, core)}: {why}" if why else collision(x, core)
    if x.still_none:
        yield x.still_none


def _labels(x: Infeasible) -> list[Label]:
    """Label every span that contributes: the statements first, then the laws and the phase."""
    p, cores = x.chosen.problem.program, x.conflicts
    all_ = [m for core in cores for m in core]
    labels = [Label(m.span, m.text) for m in all_ if m.stated]
    labels += [Label(s.span, s.text) for s in ([] if x.legal else sizes(p, all_))]
    laws = laws_of(all_)
    if "pipeline_layout" in p.spans and any("has_layout" in print_expr(r.expr) for r in laws):
        labels.insert(0, Label(p.spans["pipeline_layout"], "the pipeline layout pinned here"))
    if x.legal or x.still_none or reads_hardware(p, all_) or not labels:
        gpus = "" if p.gpus is None else f"{p.gpus} "
        labels.insert(1 if labels else 0, Label(p.spans["hardware"], f"{gpus}{p.hardware.name}"))
    labels += [Label(m.span, "required here") for m in (x.limits if x.still_none else ())]
    labels += [Label(r.span, "required here") for r in laws]
    labels += [Label(m.span, m.text) for m in all_ if m.kind == "candidates"]
    return [*dict.fromkeys(labels)]  # a law may be a part of several conflicts


def _where(x: Infeasible) -> str:
    p = x.chosen.problem.program
    gpus = f"{x.chosen.problem.gpus} {p.hardware.name}"
    return f"{p.model.name} on {gpus if p.gpus is not None else f'any number of {p.hardware.name} up to {MOST_GPUS}'}"


def explanation(c: Chosen, sources: Mapping[str, Source]) -> dict[str, Any]:
    """Write the report as JSON: the conflict's members, relaxations with the layouts that they open, nearest layout."""
    x, p = analyse(c), c.problem.program
    return {
        "version": 1,
        "kind": "infeasible",
        "run": p.name,
        "model": p.model.name,
        "hardware": p.hardware.name,
        "gpus": c.problem.gpus,
        "seq": c.problem.values["seq"],
        "phase": p.phase,
        "id": diagnostic(x).id,
        "message": message(x),
        "legal_but_for_prices": x.legal,
        "conflict": [{**as_json(m), "at": place_of(m.span, sources)} for m in x.core],
        "others": [[{**as_json(m), "at": place_of(m.span, sources)} for m in core] for core in x.others],
        "together": [] if x.relaxations else [*no_single_change(x)],
        "relaxations": [relaxation_json(r) for r in x.relaxations],
        "nearest": x.near.json,
    }
