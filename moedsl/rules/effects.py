"""Find the effect of changing a name: on the experiment, only on how it runs up to rounding, or on whether the run is a
benchmark.

The names are the keywords and the fields of Bridge's ConfigContainer; `effect` rules state the effects
(stdlib/rules/effects*.moe), and a user's own rules may add fields.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from typing import Any

from attrs import frozen

from moedsl.facts import axes, fields
from moedsl.facts.symbols import RUN, VLM_WORDS
from moedsl.rules.rule import EFFECTS, Rule

EXPERIMENT, EXECUTION, BENCHMARK = EFFECTS
UNKNOWN = "unknown"
GROUPS = (*EFFECTS, UNKNOWN)
"""Every effect, and the answer if no rule names one."""
WORDS = (*axes.PINNED, *RUN, *VLM_WORDS, "model", "hardware", "target")
"""The keywords to which a plan gives a value."""
ENVIRONMENT = "env_vars"
"""The section of Bridge that has a field for any variable."""
OFF = (None, False, 0, 0.0, "", "none", "off")
"""Values with which a benchmark-only field does nothing."""


@frozen
class Effects:
    """The declared effects, by name."""

    rules: Mapping[str, Rule]

    def word(self, name: str, value: Any = None) -> str:
        """The effect of a keyword; one of its values may have an effect of its own (`routing.balanced`)."""
        return _effect(self._of_value(name, value) or self.rules.get(name))

    def _of_value(self, name: str, value: Any) -> Rule | None:
        """The rule of a keyword's value, or of the first member of a set that has one."""
        members = value if isinstance(value, list | tuple | set | frozenset) else [value]
        return next((self.rules[f"{name}.{m}"] for m in members if f"{name}.{m}" in self.rules), None)

    def field(self, path: str) -> str:
        """The effect of a Bridge field, from its own name or the longest prefix."""
        return _effect(self.rule_of_field(path))

    def rule_of_field(self, path: str) -> Rule | None:
        """The rule that decides a field's effect."""
        return next((self.rules[p] for p in prefixes(path) if p in self.rules), None)

    def reason(self, name: str, value: Any = None) -> str | None:
        """The reason of the effect of a keyword, a value of it or a field."""
        rule = self._of_value(name, value) or self.rules.get(name) or self.rule_of_field(name)
        return rule.because if rule else None

    def name(self, name: str, value: Any = None) -> str:
        """The effect of a keyword, or of a field if no keyword has that name."""
        return self.word(name, value) if name in WORDS else self.field(name)

    def pair(self, name: str, a: Any, b: Any) -> str:
        """The effect of a change between two values; if both values have one, the stronger, with benchmark first."""
        found = {self.name(name, a), self.name(name, b)}
        return next((e for e in (BENCHMARK, EXPERIMENT, UNKNOWN) if e in found), EXECUTION)

    def is_benchmark(self, name: str, value: Any) -> bool:
        """Whether a value makes the run a benchmark: a keyword's with that effect, or an active benchmark-only
        field."""
        return self.name(name, value) == BENCHMARK and value not in OFF


def _effect(rule: Rule | None) -> str:
    return str(getattr(rule.expr, "id", UNKNOWN)) if rule else UNKNOWN


def prefixes(path: str) -> Iterator[str]:
    """The path and its prefixes up to a `.` or `_`, longest first."""
    yield path
    for i in range(len(path) - 1, 0, -1):
        if path[i] in "._":
            yield path[:i]


def of_rules(rules: Iterable[Rule]) -> Effects:
    """The effects among a run's rules; of two for one name, which `check` refuses, the first."""
    table: dict[str, Rule] = {}
    for r in rules:
        if r.kind == "effect":
            table.setdefault(r.name, r)
    return Effects(table)


@cache
def known_names() -> frozenset[str]:
    """Everything that an `effect` may name: keywords, their values, Bridge's fields and their prefixes."""
    words = {f"{n}.{v}" for n, values in _values().items() for v in values}
    paths = {p for path in fields.fields(fields.versions()[-1]) for p in prefixes(path)}
    return frozenset({*WORDS, *words, *paths, ENVIRONMENT, *sections()})


def sections() -> frozenset[str]:
    """The sections of Bridge's ConfigContainer, including those without fields."""
    return frozenset({*(s for s in fields.sections(fields.versions()[-1]) if "." not in s), ENVIRONMENT})


def _values() -> dict[str, tuple[str, ...]]:
    """The words that a keyword may have as its value."""
    return {a.name: a.words for a in axes.AXES if a.words} | {n: t.words for n, t in RUN.items() if t.words}


def is_known(name: str) -> bool:
    """Whether an `effect` may name it; below `env_vars` any name stands."""
    return name in known_names() or name.startswith(f"{ENVIRONMENT}.")
