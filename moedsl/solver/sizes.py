"""The sequence and the batch that a run states: whether a conflict reads them, and which ones near them may hold."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from attrs import frozen

from moedsl.checker.program import Program
from moedsl.diagnostics.source import Span
from moedsl.rules.vectorizer import names
from moedsl.schema import axes
from moedsl.schema.symbols import HARDWARE
from moedsl.solver.laws import Compiled
from moedsl.solver.members import Member
from moedsl.solver.problem import divisors
from moedsl.solver.reads import closure

MOST = 24
"""Sizes that are asked about, the nearest first."""
_WORDS = {"seq": "seq", "global_batch": "batch"}


@frozen
class Size:
    """`name` is what rules call it, `word` its statement at `span`; `value` in tokens or sequences."""

    name: str
    word: str
    value: int
    span: Span

    @property
    def text(self) -> str:
        """As the run would write it."""
        return f"{self.word} {self.value}"


def read_by(p: Program, core: Sequence[Member]) -> frozenset[str]:
    """Every name that the rules of a conflict read, directly or through lets."""
    used = frozenset[str]().union(*(names(m.rule.expr) | names(m.rule.when) for m in core if m.rule is not None))
    return closure(used, p.of("let"))


def reads_hardware(p: Program, core: Sequence[Member]) -> bool:
    """Whether a conflict has to do with the GPUs, their number or what they can."""
    return bool(read_by(p, core) & {"gpus", *HARDWARE})


def sizes(p: Program, core: Sequence[Member]) -> list[Size]:
    """The sizes that the run states itself, a sweep aside, and a conflict reads."""
    read, swept = read_by(p, core), p.spans.get("sweep")
    values = {"seq": p.seq, "global_batch": p.batch or 0}
    said = {n: p.spans[w] for n, w in _WORDS.items() if w in p.spans and p.spans[w] != swept}
    return [Size(n, _WORDS[n], values[n], span) for n, span in said.items() if n in read]


def nearby(c: Compiled, s: Size) -> list[int]:
    """Multiples of what the meshes may divide a size by, the nearest first and of two the larger."""
    p = c.problem.program
    held = prod(pin.code for a, pin in p.pins.items() if a == "micro_batch" or axes.BY_NAME[a].mesh == "attention")
    units = {u * k for d in divisors(c.problem.gpus) for u in (d, d * held) for k in (1, 2)}
    around = {n for u in units for n in (s.value // u * u, -(-s.value // u) * u)} - {0, s.value}
    return sorted(around, key=lambda n: (abs(n - s.value), -n))[:MOST]
