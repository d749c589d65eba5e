"""Name what the device did: classes of kernels by tables of name patterns, in blocks of rules `of trace`."""

from __future__ import annotations

from collections.abc import Sequence

from attrs import define, field, frozen

from moedsl.lang import ast
from moedsl.rules import collect
from moedsl.rules.library import Library
from moedsl.rules.patterns import Pattern, UnusablePattern, compiled
from moedsl.rules.rule import Rule
from moedsl.support.diagnostics import Diagnostic, error

SUBJECT = "trace"
COMPUTE, COMMUNICATION, COPIES, STEPS, MEMORY = "compute", "communication", "copies", "steps", "memory"
OPERATIONS = (COMMUNICATION, COMPUTE, COPIES)
BLOCKS = (*OPERATIONS, STEPS, MEMORY)
"""The names of blocks `of trace`: what an operation is, which ranges of the host are steps, what memory holds."""
NO_CLASS = "unknown"
INSIDE = " @ "
"""Between the name of a kernel and the ranges around its launch, in a pattern that names both."""
HOST = "host"
"""What stands for the outermost range of an operator of a CPU."""


@frozen
class Kind:
    """A class of operations: its block and its name."""

    block: str
    name: str


UNKNOWN_KIND = Kind(COMPUTE, NO_CLASS)


@define
class Classes:
    """The patterns in the order in which they are tried: a run's own first, then the stdlib's."""

    rules: Sequence[Rule]
    patterns: list[tuple[Kind, Pattern, bool]] = field(init=False)
    known: dict[tuple[str, tuple[str, ...], bool], Kind] = field(factory=dict)
    known_steps: dict[str, int | None] = field(factory=dict)

    def __attrs_post_init__(self) -> None:
        own_first = sorted(self.rules, key=lambda r: r.is_std)
        self.patterns = [
            (Kind(r.id.split(".")[1], r.name), compiled(_pattern(r)), INSIDE in _pattern(r)) for r in own_first
        ]

    def of(self, name: str, around: tuple[str, ...], on_cpu: bool = False) -> Kind:
        """Return the class of an operation, by its name and the ranges around it or its launch."""
        key = (name, around, on_cpu)
        found = self.known.get(key)
        if found is None:
            whole = name + INSIDE + "/".join([HOST, *around] if on_cpu else around)
            fitting = (
                k for k, p, inside in self.patterns if k.block in OPERATIONS and p.search(whole if inside else name)
            )
            found = self.known[key] = next(fitting, UNKNOWN_KIND)
        return found

    def step(self, text: str) -> int | None:
        """Return the place of the first pattern of steps that a range's name matches; None if it is no step."""
        if text not in self.known_steps:
            steps = (p for k, p, _ in self.patterns if k.block == STEPS)
            self.known_steps[text] = next((i for i, p in enumerate(steps) if p.search(text)), None)
        return self.known_steps[text]

    def memory(self, frame: str) -> str | None:
        """Return the kind of an allocation by one frame of the code that made it; None if no pattern fits."""
        return next((k.name for k, p, _ in self.patterns if k.block == MEMORY and p.search(frame)), None)


def read(library: Library) -> tuple[Classes, list[Diagnostic]]:
    """Read the blocks `of trace` of a library."""
    found: list[Diagnostic] = []
    rules: list[Rule] = []
    for prefix, block in library.rules:
        if block.subject is not None and block.subject.id == SUBJECT:
            for member in block.members:
                _add(prefix, block, member, rules, found)
    return Classes([] if found else rules), found


def _add(prefix: str, block: ast.RulesDecl, m: ast.Member, rules: list[Rule], found: list[Diagnostic]) -> None:
    rule = collect.read_rule(prefix, block, m, found)
    if block.name.id not in BLOCKS:
        text = f"a block of rules `of trace` is called {', '.join(BLOCKS)}, not `{block.name.id}`"
        found.append(error("check.trace_member", text, block.name.span))
    elif rule.kind != "symptom":
        text = f"`{rule.kind}` decides something for a run, and a trace is only read"
        found.append(error("check.trace_member", text, rule.span, help='write `symptom CLASS: "PATTERN"`'))
    else:
        rules.append(rule)
        found += _unusable(rule)


def _unusable(rule: Rule) -> list[Diagnostic]:
    try:
        compiled(_pattern(rule))
    except UnusablePattern as e:
        return [error("check.pattern", str(e), rule.expr.span, help=e.help)]
    return []


def _pattern(rule: Rule) -> str:
    assert isinstance(rule.expr, ast.String)
    return rule.expr.value
