"""The sequence length and batch that a run states: whether a conflict reads them, and near values that may work."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from attrs import frozen

from moedsl.facts import axes
from moedsl.facts.symbols import HARDWARE
from moedsl.rules.check.program import Program
from moedsl.solver.laws import Compiled
from moedsl.solver.members import Member
from moedsl.solver.problem import divisors
from moedsl.solver.reads import closure
from moedsl.support.source import Span

MOST = 24
"""The most sizes that are tried, the nearest first."""
_WORDS = {"seq": "seq", "global_batch": "batch"}


@frozen
class Size:
    """A size: `name` in rules, keyword `word` of the statement at `span`, `value` in tokens or sequences."""

    name: str
    word: str
    value: int
    span: Span

    @property
    def text(self) -> str:
        """Write the statement."""
        return f"{self.word} {self.value}"


def read_by(p: Program, core: Sequence[Member]) -> frozenset[str]:
    """Every name that the rules of a conflict read, directly or through lets."""
    used = frozenset[str]().union(*(m.rule.reads for m in core if m.rule is not None))
    return closure(used, p.of("let"))


def reads_hardware(p: Program, core: Sequence[Member]) -> bool:
    """Whether a conflict reads the number of GPUs or a fact of the hardware."""
    return bool(read_by(p, core) & {"gpus", *HARDWARE})


def sizes(p: Program, core: Sequence[Member]) -> list[Size]:
    """The sizes that the run states and a conflict reads."""
    read = read_by(p, core)
    values = {"seq": p.seq, "global_batch": p.batch or 0}
    stated = {n: p.spans[w] for n, w in _WORDS.items() if w in p.spans}
    return [Size(n, _WORDS[n], values[n], span) for n, span in stated.items() if n in read]


def nearby(c: Compiled, s: Size) -> list[int]:
    """Near sizes that meshes can divide, the nearest first; of two as near, the larger first."""
    p = c.problem.program
    held = prod(pin.code for a, pin in p.pins.items() if a == "micro_batch" or axes.BY_NAME[a].mesh == "attention")
    units = {u * k for d in divisors(c.problem.gpus) for u in (d, d * held) for k in (1, 2)}
    around = {n for u in units for n in (s.value // u * u, -(-s.value // u) * u)} - {0, s.value}
    return sorted(around, key=lambda n: (abs(n - s.value), -n))[:MOST]
