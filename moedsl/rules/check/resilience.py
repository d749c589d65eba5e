"""Read `resilience`: a section of Bridge against failures, switched on, with its options as fields."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from attrs import frozen

from moedsl.facts import fields
from moedsl.lang import ast
from moedsl.support.diagnostics import Diagnostic, error, suggest


@frozen
class Section:
    """What a word of `resilience` stands for."""

    path: str
    """The section of Bridge's ConfigContainer."""
    on: Mapping[str, bool | str]
    """The fields that switch it on."""
    options: tuple[str, ...] = ()
    """The fields that belong to it; empty: all of the section."""


SECTIONS: Mapping[str, Section] = {
    "ft": Section("ft", {"enable_ft_package": True, "calc_ft_timeouts": True}),
    "inprocess_restart": Section("inprocess_restart", {"enabled": True}),
    "nvrx_straggler": Section("nvrx_straggler", {"enabled": True}),
    "preemption": Section("train", {"exit_signal_handler": True}, ("exit_signal_handler_for_dataloader",)),
    "rerun_state_machine": Section("rerun_state_machine", {"rerun_mode": "validate_results"}),
}
"""The words of `resilience`: Bridge's names of its sections, and preemption, the name of NVIDIA's plugin."""
_FLAGS = {"on": True, "off": False}


def options(section: str) -> tuple[str, ...]:
    """The options of a section: fields of Bridge."""
    of = SECTIONS[section]
    named = tuple(path.partition(".")[2] for path in fields.fields() if path.startswith(f"{of.path}."))
    return of.options or named


def mistakes(stmt: ast.ResilienceStmt) -> Iterator[Diagnostic]:
    """Report an unknown section, and options that it does not have."""
    name = stmt.section.id
    if name not in SECTIONS:
        text = f"`resilience` is one of {', '.join(SECTIONS)}, not `{name}`"
        yield error("check.unknown_word", text, stmt.section.span, help=suggest(name, [*SECTIONS]))
        return
    known = options(name)
    for b in stmt.bindings:
        if b.name.id not in known:
            help = suggest(b.name.id, [*known]) or (f"one of {', '.join(known)}",)
            yield error("check.resilience", f"`{name}` has no option `{b.name.id}`", b.name.span, help=help)


def sets(stmt: ast.ResilienceStmt) -> Iterator[ast.SetStmt]:
    """The fields that a statement sets: those that switch the section on, and its options, which may replace them."""
    of, span = SECTIONS[stmt.section.id], stmt.section.span
    stated = {b.name.id for b in stmt.bindings}
    for name, on in of.on.items():
        if name not in stated:
            value = ast.Bool(on, span) if isinstance(on, bool) else ast.Name(on, span)
            yield ast.SetStmt(ast.Name(f"{of.path}.{name}", span), value, stmt.span)
    for b in stmt.bindings:
        yield ast.SetStmt(ast.Name(f"{of.path}.{b.name.id}", b.name.span), _flag(b.value), b.span)


def _flag(value: ast.Expr) -> ast.Expr:
    """Read `on` and `off` as true and false."""
    return ast.Bool(_FLAGS[value.id], value.span) if isinstance(value, ast.Name) and value.id in _FLAGS else value
