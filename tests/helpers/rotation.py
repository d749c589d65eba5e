"""Which cases of a wide test a run takes: some, drawn by a seed that the run prints, or all of them.

Hypothesis draws by the same seed, an eighth of its examples.

`MOEDSL_SEED` is the seed; without it the commit is, so each commit draws others and a second run of it the same.
`MOEDSL_WIDE=all` takes every case: `make test-all`.
"""

import os
import random
import subprocess
from collections.abc import Callable, Hashable, Sequence
from datetime import UTC, datetime
from functools import cache
from typing import TypeVar

from tests.helpers.paths import ROOT

T = TypeVar("T")
ALL = os.environ.get("MOEDSL_WIDE") == "all"


@cache
def seed() -> str:
    """The seed of this run, the same in every process of it."""
    given = os.environ.get("MOEDSL_SEED")
    return given or _commit() or datetime.now(UTC).strftime("%Y-%m-%d")


def _commit() -> str:
    words = ["git", "-C", str(ROOT), "rev-parse", "--short=10", "HEAD"]
    try:
        return subprocess.run(words, capture_output=True, text=True, check=False).stdout.strip()
    except FileNotFoundError:
        return ""


def dice(name: str) -> random.Random:
    """The random numbers of one test of this run."""
    return random.Random(f"{name} {seed()}")


def hypothesis_seed() -> int:
    """The seed of this run as Hypothesis takes it."""
    return dice("hypothesis").getrandbits(32)


def examples(every: int) -> int:
    """Of so many examples of Hypothesis, those of this run."""
    return every if ALL else max(every // 8, min(every, 5))


def some(name: str, cases: Sequence[T], count: int) -> list[T]:
    """So many of the cases, in their order; every case where all are asked for."""
    if ALL:
        return list(cases)
    return [cases[i] for i in sorted(dice(name).sample(range(len(cases)), min(count, len(cases))))]


def one_of_each(name: str, cases: Sequence[T], group: Callable[[T], Hashable]) -> list[T]:
    """One case of each group, in the order of the cases; every case where all are asked for.

    The place in its group moves from one group to the next, so that a run sees each place about as often.
    """
    if ALL:
        return list(cases)
    groups: dict[Hashable, list[T]] = {}
    for case in cases:
        groups.setdefault(group(case), []).append(case)
    drawn, places = dice(name), list[int]()
    out: list[T] = []
    for members in groups.values():
        if not places:
            places = drawn.sample(range(len(members)), len(members))
        out.append(members[places.pop() % len(members)])
    return out


def a_few_of_each(names: Sequence[str]) -> set[str]:
    """Of a quarter of the test functions of each file the names of an eighth of their cases, at least one; every case
    where all are asked for."""
    files: dict[str, dict[str, list[str]]] = {}
    for name in names:
        function = name.partition("[")[0]
        files.setdefault(name.partition("::")[0], {}).setdefault(function, []).append(name)
    quarter = [
        (name, functions[name])
        for file, functions in files.items()
        for name in some(f"functions of {file}", [*functions], (len(functions) + 3) // 4)
    ]
    return {case for name, cases in quarter for case in some(name, cases, max(1, len(cases) // 8))}
