"""Choose one layout for all variants of an axis, so that comparing them compares only that axis.

Among the layouts that are legal for every variant, it is the best for the first variant by the phase's ranking. Each
row must also obey the other variants' laws, with the isolated axis changed. The search is the usual one, so the choice
is exact. If there is no such layout, the conflict is explained: one variant has no layout at all, or several have none
in common.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import combinations, permutations, product
from typing import Any

import numpy as np
from attrs import evolve, frozen

from moedsl.facts import axes
from moedsl.facts.machines import gpu_counts as counts
from moedsl.facts.symbols import CASES, COSTS, MEMORY
from moedsl.lang.printer import print_expr
from moedsl.planner.notes import smallest, tight
from moedsl.rules.check.program import Isolation, Pin, Program, Variant
from moedsl.rules.rule import Rule
from moedsl.solver.bounded_space import memory_prices
from moedsl.solver.infeasible import analyse, diagnostic
from moedsl.solver.laws import Compiled, Law, Row, Table, first_broken
from moedsl.solver.problem import cases
from moedsl.solver.search import Search, Solution
from moedsl.solver.solve import KEEP, Chosen, solve
from moedsl.support.diagnostics import Diagnostic, Label, error

Progress = Callable[[str], None]


def choose(p: Program, progress: Progress) -> tuple[tuple[Chosen, ...], list[Diagnostic]]:
    """Choose the same layout for each variant, in the order of the statement, or explain why none is legal for all."""
    assert p.isolate is not None
    found = p.gpus is None and p.isolate.axis != "gpus"
    for case, gpus in product(cases(p), counts(p.hardware) if found else [p.gpus]):
        progress(f"looking for a layout that {len(p.isolate.variants)} variants share")
        arms = compile_arms(p, gpus, case)
        solution = search(arms)
        if not solution.rows:
            continue
        chosen = list[Chosen]()
        for arm in arms:  # only the first variant also gets the next best layouts
            rows = (price(arm, solution.rows[0]), *(solution.rows[1:] if arm is arms[0] else ()))
            compiled = with_laws(arm.chosen.compiled, [a for a in arms if a is not arm])
            solved = Solution(rows, solution.legal, solution.priced)
            chosen.append(evolve(arm.chosen, compiled=compiled, solution=solved))
        return tuple(chosen), [*tight(chosen[0]), *([smallest(p, gpus)] if found and gpus else [])]
    return (), conflict(p, compile_arms(p, p.gpus or p.hardware.gpus_per_node, CASES[-1]))


@frozen
class Arm:
    """One compiled variant; its problem has the first variant's domains except on the isolated axis."""

    variant: Variant
    chosen: Chosen

    def table(self, t: Table) -> Table:
        """Convert another variant's rows to this variant."""
        own = {a: np.full(t.rows, code) for a, code in self.variant.codes.items() if a in axes.BY_NAME}
        assumed = {n: t[n] for n in (*axes.BY_NAME, *COSTS) if n in t and n not in t.axes}
        return Table({**t.axes, **own}, {**self.chosen.problem.codes, **assumed}, self.chosen.compiled.lets)


def compile_arms(p: Program, gpus: int | None, must_fit: str) -> tuple[Arm, ...]:
    """Compile every variant with its values pinned, in one case of the memory estimate.

    Except on the isolated axis, all variants use the first one's domains, even where a default or a phase would give
    them others.
    """
    assert p.isolate is not None
    span, arms, base = p.isolate.span, list[Arm](), None
    for v in p.isolate.variants:
        own = set(v.codes)
        pins = {a: Pin(a, code, span) for a, code in v.codes.items() if a in axes.BY_NAME}
        sizes: dict[str, Any] = {n: value for n, value in v.codes.items() if n not in axes.BY_NAME}
        q = evolve(
            p, name=f"{p.name}.{p.isolate.axis}_{v.label}", pins={**p.pins, **pins},
            spans={**p.spans, **dict.fromkeys(sizes, span)}, isolate=Isolation(p.isolate.axis, (v,), span), **sizes,
        )  # fmt: skip
        said = {"seq": "seq", "batch": "global_batch"}
        fixed = {n: base.values[n] for word, n in said.items() if base is not None and word not in own}
        chosen = solve(q, q.gpus or gpus or 0, keep=0, must_fit=must_fit, **fixed)
        if base is None:
            base = chosen.problem
        else:
            domains = {a: chosen.problem.domains[a] if a in own else d for a, d in base.domains.items()}
            origins = {a: chosen.problem.origins[a] if a in own else o for a, o in base.origins.items()}
            problem = evolve(chosen.problem, domains=domains, origins=origins, defaults=base.defaults)
            chosen = evolve(chosen, problem=problem, compiled=evolve(chosen.compiled, problem=problem))
        arms.append(Arm(v, chosen))
    return tuple(arms)


def search(arms: Sequence[Arm], keep: int = KEEP) -> Solution:
    """Find the first variant's best layouts among those that are legal for the other variants too."""
    first = arms[0].chosen
    return Search(with_laws(first.compiled, arms[1:]), first.cost, keep=keep).run()


def with_laws(c: Compiled, others: Sequence[Arm]) -> Compiled:
    """Add other variants' laws to this variant; they no longer need the values that their variant fixes."""

    def joint(arm: Arm, law: Law) -> Law:
        if not law.priced:
            return evolve(law, needs=law.needs - frozenset(arm.variant.codes), value=lambda t: law.value(arm.table(t)))
        # applied when every axis is bound, because the other variant has its own prices
        needs = law.needs | frozenset(axes.BY_NAME)
        return evolve(law, needs=needs, value=lambda t: law.value(priced_table(arm, t, law.needs)))

    return evolve(c, laws=(*c.laws, *(joint(arm, law) for arm in others for law in arm.chosen.compiled.laws)))


def priced_table(arm: Arm, t: Table, needs: frozenset[str]) -> Table:
    """Convert another variant's rows to this variant, and add the prices that a law needs: memory and step time."""
    here, cost = arm.table(t), arm.chosen.cost
    memory = memory_prices(cost, [n for n in MEMORY if n in needs], here)
    return here.with_columns(**memory, **({"step_time": cost.time(here)} if "step_time" in needs else {}))


def price(arm: Arm, row: Row) -> Row:
    """Price and rank another variant's row for this variant, by the search itself."""
    codes = {**row.codes, **{a: c for a, c in arm.variant.codes.items() if a in axes.BY_NAME}}
    compiled = arm.chosen.compiled
    problem = evolve(compiled.problem, domains={a: np.array([c]) for a, c in codes.items()})
    return Search(evolve(compiled, problem=problem), arm.chosen.cost).run().rows[0]


ID = "solve.isolation"


def conflict(p: Program, arms: Sequence[Arm]) -> list[Diagnostic]:
    """Make an error for each variant without any layout, else one for two variants, or all, without a common one."""
    assert p.isolate is not None
    own = [(arm, search([arm], keep=1).rows) for arm in arms]
    alone = [arm for arm, rows in own if not rows]
    if alone:
        out = list[Diagnostic]()
        for arm in alone:  # explain each conflict as for a separate run
            found, v = diagnostic(analyse(arm.chosen)), arm.variant
            ways = _drop(p, alone) or (f"write another value in place of `{v.label}`, or drop the isolation",)
            # do not propose to drop the value that the variant stands for
            given_up = tuple(f"write `pin {a}=" for a in v.codes)
            help = (*ways, *(h for h in found.help if not h.startswith(given_up)))
            out.append(evolve(found, message=f"with {p.isolate.axis} {v.label}: {found.message}", help=help))
        return out
    best = {arm.variant.label: rows[0] for arm, rows in own}
    for pair in combinations(arms, 2):
        if not search(pair, keep=1).rows:
            return [_apart(p, pair, best)]
    return [_apart(p, arms, best)]


def _apart(p: Program, arms: Sequence[Arm], best: dict[str, Row]) -> Diagnostic:
    """Explain variants that have layouts, but none in common."""
    labels = [Label(p.isolate.span, "one layout for all of these")] if p.isolate else []
    rules, reasons = list[Rule](), list[str]()
    for a, b in permutations(arms, 2):
        row, c = best[a.variant.label], b.chosen.compiled
        law = first_broken(c.laws, priced_table(b, c.table([row.codes]), frozenset(COSTS)))[0]
        if law is not None:
            rule = law.rule
            rules.append(rule)
            layout = axes.pairs({n: axes.BY_NAME[n].decode(row.codes[n]) for n in axes.SUMMARY})
            breaks = f"breaks {rule.id} in `{b.variant.label}`: {print_expr(rule.expr)}"
            reasons.append(f"the best layout of `{a.variant.label}` ({layout}) {breaks}")
    labels += [Label(r.span, "required here") for r in dict.fromkeys(rules)]
    words = " and ".join(f"`{a.variant.label}`" for a in arms)
    text = f"no single layout of {p.model.name} on {arms[0].chosen.problem.gpus} {p.hardware.name} works for {words}"
    drop = tuple(line for arm in arms[1:] for line in _drop(p, [arm]))
    because = "an isolation changes one thing: every variant must be legal and fit with all else the same"
    return error(ID, text, *labels, help=(*reasons, *drop), because=because)


def _drop(p: Program, arms: Sequence[Arm]) -> tuple[str, ...]:
    """Propose the statement without some variants, if two or more remain."""
    assert p.isolate is not None
    out = [arm.variant.label for arm in arms]
    left = [v.label for v in p.isolate.variants if v.label not in out]
    words = " and ".join(f"`{label}`" for label in out)
    return (f"leave {words} out: `isolate {p.isolate.axis} in {', '.join(left)}`",) if left[1:] else ()
