"""`make optimum`: ask for the best plan of every measured run's problem, and compare; writes docs/optimum.md.

    python tools/make_optimum.py [ID ...]        a table of some runs only, and no page

The problem is the run's model, machines, length, batch, precision, routing and what it sets, with `throughput first`
and nothing pinned. A plan that expects less than somebody measured is a regret. The page names what separates the two.
"""

from __future__ import annotations

import json
import re
import sys
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path

from accuracy_tflops import Stated
from attrs import frozen

from moedsl.compiler import compile_source
from moedsl.cost.estimate import verdict
from moedsl.facts import axes
from moedsl.runs.measured_runs import Measured, read
from moedsl.solver.laws import Row
from moedsl.solver.search import Search
from moedsl.solver.solve import Chosen, plan_for
from moedsl.support.source import Source

ROOT = Path(__file__).parents[1]
CALIBRATION = ROOT / "stdlib/calibration"
PAGE = ROOT / "docs/optimum.md"
FILES = ("published.jsonl", "tflops.jsonl", "records.jsonl", "adapters.jsonl")
OF_LAYOUT = re.compile(r"\bpin [^;\n]*|set (model\.moe_expert_rank_|model\.fp8_|mixed_precision\.fp8_)[^;\n]*;")
ENOUGH = 0.95
"""Expected over measured tokens/s below which a reason must be named."""


@frozen
class Regret:
    """The best plan of a measured run's problem beside the run. Rates are tokens/s of a GPU; `ours` is None where there
    is no plan."""

    run: Measured
    ours: float | None
    plan: Row | None
    plan_verdict: str
    pinned: float
    """The estimate of the layout that was measured."""
    verdict: str
    """Of the layout that was measured."""
    beyond: Mapping[str, str]
    """Its values that the search does not try, by axis."""

    @property
    def ratio(self) -> float:
        """Return what the best plan expects over what was measured."""
        return (self.ours or 0.0) / (self.run.tokens or 1.0)

    @property
    def off(self) -> float:
        """Return the estimate of the measured layout over the measurement."""
        return self.pinned / (self.run.tokens or 1.0)

    @property
    def reason(self) -> str:
        """Name what separates the plan from the run: whatever keeps the plan behind the measured layout, then the
        estimate of that layout."""
        if self.ratio >= ENOUGH:
            return ""
        kept = ""
        if self.ours is None or self.ours < self.pinned * (1 - 1e-3):
            kept = "memory verdict" if self.verdict != "FITS" else "search"
            if self.beyond:
                learns = self.beyond.keys() <= {"moments", "grad_reduce"}
                kept = "format to be stated: " if learns else "not tried: "
                kept += ", ".join(f"{k} {v}" for k, v in self.beyond.items())
        estimate = "estimate" if self.off < ENOUGH else ""
        return "; ".join(part for part in (kept, estimate) if part) or "search"


def main() -> None:
    only, found = sys.argv[1:], list[Regret]()
    runs = list(asked(only))
    for i, (run, text) in enumerate(runs, 1):
        print(f"\r  {i} of {len(runs)}: {run.id:<10}", end="", file=sys.stderr, flush=True)
        found.append(regret(run, text))
    print(file=sys.stderr)
    if not only:
        PAGE.write_text("\n".join(page(found)) + "\n", encoding="utf-8")
    print("\n".join(summary(found) if not only else table(found)))


def asked(only: Sequence[str] = ()) -> Iterator[tuple[Measured, str]]:
    """Yield every run that has a speed, or some by their ids, with its text."""
    for name in FILES:
        source, runs, wrong = read(CALIBRATION / name)
        if wrong:
            sys.exit("\n".join(d.message for d in wrong))
        for run, line in zip(runs, source.text.splitlines(), strict=True):
            said = json.loads(line)
            if only and run.id not in only:
                continue
            if tflops := said.get("tflops_per_gpu"):
                yield Stated(run, said["source"], tflops, "").measured, said["run"]
            elif run.tokens:
                yield run, said["run"]


def regret(run: Measured, text: str) -> Regret:
    """Plan the run's problem, which is its text without what belongs to a layout, and compare."""
    chosen = best(OF_LAYOUT.sub("", text))
    row = next(iter(chosen.solution.rows), None)
    rate = None if row is None else float(chosen.cost.tokens_per_second_per_gpu(row.step_time))
    said = "no plan" if row is None else verdict(chosen.cost, row.codes)
    beyond = outside(chosen.search, run.row)
    return Regret(run, rate, row, said, run.predicted(), verdict(run.cost, run.row), beyond)


@cache
def best(problem: str) -> Chosen:
    (program,) = compile_source(Source("problem.moe", problem), "check").programs
    assert program.gpus is not None
    return plan_for(program, program.gpus, keep=1)


def outside(search: Search, row: Mapping[str, int]) -> dict[str, str]:
    """Return the values of a layout that the search does not try, by axis, in words."""
    tried = {a.name: search.c.problem.domains[a.name].tolist() for a in axes.AXES}
    return {a.name: _spelled(a.decode(row[a.name])) for a in axes.AXES if row[a.name] not in tried[a.name]}


def _spelled(value: object) -> str:
    return f"[{', '.join(value)}]" if isinstance(value, list) else str(value)


# ---------------------------------------------------------------- the page


def summary(found: Sequence[Regret]) -> Iterator[str]:
    """Yield the lines that a test checks."""
    below = [r for r in found if r.ratio < ENOUGH]
    yield f"- {len(found)} measured runs; {len(below)} with a best plan below {ENOUGH:.2f} of what was measured"
    yield f"- below 0.80: {sum(r.ratio < 0.8 for r in found)}; the least: {min(r.ratio for r in found):.2f}"
    said = Counter(r.verdict for r in found)
    yield "- verdicts of the measured layouts, which all ran: " + ", ".join(f"{n} {v}" for v, n in said.most_common())
    reasons = Counter(part.split(":")[0] for r in below for part in r.reason.split("; "))
    yield "- reasons: " + (", ".join(f"{reason} {n}" for reason, n in reasons.most_common()) or "none")


def page(found: Sequence[Regret]) -> Iterator[str]:
    """Yield docs/optimum.md by lines."""
    yield HEAD
    yield from summary(found)
    yield f"\n## Below {ENOUGH:.2f}\n"
    yield from table([r for r in found if r.ratio < ENOUGH])
    yield "\n## Every run\n"
    yield from table(found)


def table(found: Sequence[Regret]) -> Iterator[str]:
    yield f"| {' | '.join(COLUMNS)} |"
    yield "|---" * len(COLUMNS) + "|"
    for r in sorted(found, key=lambda r: r.ratio):
        run = r.run
        yield (
            f"| {run.id} | {run.model} | {run.cost.gpus} {run.gpu} | {run.precision} | {run.cost.routing} "
            f"| {r.ratio:.2f} | {r.off:.2f} | {r.verdict} | {r.reason} | {changes(r)} |"
        )


def changes(r: Regret) -> str:
    """Describe the plan by what differs from the layout that was measured."""
    if r.plan is None:
        return "no plan"
    moved = [a for a in axes.AXES if r.run.row[a.name] != r.plan.codes[a.name]]
    said = [(a.name, axes.show(a.decode(r.run.row[a.name])), axes.show(a.decode(r.plan.codes[a.name]))) for a in moved]
    return ", ".join(f"{name} {here} -> {there}" for name, here, there in said)


COLUMNS = (
    "run", "model", "machines", "precision", "routing", "ours over measured", "pinned", "verdict", "what separates",
    "ours",
)  # fmt: skip
HEAD = """# The best plan beside what was measured

`make optimum` writes this page. For each measured run at hand it asks for the best plan of the same problem (model,
machines, length, batch, precision and routing; `throughput first`, and nothing pinned), and compares the tokens/s that
the plan expects with those that were measured. Below 1, somebody ran faster than the best that the plan expects.

- **ours over measured** is the best plan's estimate over the measurement.
- **pinned** is the estimate of the measured layout over the measurement: the error of the estimate alone.
- **verdict** is what the memory estimate says of the measured layout. All of them ran.
- **what separates**: *estimate* where the measured layout itself is expected below the measurement by more than 5%;
  *memory verdict* where the plan is slower than the measured layout, which does not FIT by the estimate; *format to
  be stated* where the layout is faster by a format of moments or gradients, which changes what is learned and is a
  plan's only where a run states it; *not tried* where another value of that layout is tried only if it is pinned;
  *search* otherwise.
- **ours** is what the plan changes.

Runs are those of `published.jsonl` and `tflops.jsonl`, which taught the constants, and those of `records.jsonl` and
`adapters.jsonl`, which did not.

## Summary
"""

if __name__ == "__main__":
    main()
