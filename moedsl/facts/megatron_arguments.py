"""Read the arguments of Megatron-LM (megatron_arguments.json), and the fields of a configuration that each decides.

The table is of one release of Megatron-Core (`core`); tools/make_megatron_arguments.py asks it. A path starts at
Bridge's ``ConfigContainer``, whose sections Megatron-LM's own configuration shares. What the flags of older releases
differ in is in megatron_flags.json (tools/make_megatron_flags.py).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any

from attrs import field, frozen

from moedsl.facts import fields

DTYPES = {"float32": "fp32", "bfloat16": "bf16", "float16": "fp16", "uint8": "fp8"}
"""Megatron-LM's words for dtypes (megatron/training/arguments.py:1038)."""
SAME = "="
"""In place of a field's value: that of the argument."""


@frozen
class Argument:
    """One argument; `dest` is its name in a log. Arguments of different flags may share a `dest`."""

    dest: str
    flags: tuple[str, ...] = field(converter=tuple)
    action: str
    """value: the flag has values; true, false: the flag alone gives this; either: ``--x`` and ``--no-x``."""
    default: Any = None
    group: str = ""
    """The heading in Megatron-LM's own help."""
    type: str = ""
    """int, float, str, bool, word (of `choices`), integers (``128,0``), or pattern: a number or ``([0]*3+[1]*45)``."""
    nargs: int | str | None = None
    """A number of values; +: one or more; *: any; None: one."""
    choices: tuple[Any, ...] = field(default=(), converter=tuple)
    fields: Mapping[str, Any] = field(factory=dict)
    """The fields that read the argument, with `SAME` or the value that they take when the flag is given."""
    also: Mapping[str, Any] = field(factory=dict)
    """Other fields that Megatron-LM's checks change when the flag is given."""
    named: str = ""
    """The field of Bridge's data set that has the argument's name."""

    def words(self, value: Any) -> tuple[str, ...]:
        """Write the argument with a value as words of a command line; nothing if its absence gives the value."""
        if self.action != "value":
            given = {"true": True, "false": False, "either": not self.default}[self.action]
            return ((self.flags[0] if value or self.action != "either" else self.flags[-1],)) if value == given else ()
        many = isinstance(value, Sequence) and not isinstance(value, str)
        if self.type == "integers":
            return self.flags[0], ",".join(map(str, value))
        if self.type == "pattern" and many:
            return self.flags[0], pattern(value)
        return self.flags[0], *(map(str, value) if many else [str(value)])


def pattern(values: Sequence[int]) -> str:
    """Write a list as Megatron-LM's patterns do: ``([0]*3+[1]*45)``."""
    runs: list[list[int]] = []
    for v in values:
        if runs and runs[-1][0] == v:
            runs[-1][1] += 1
        else:
            runs.append([v, 1])
    return "(" + "+".join(f"[{v}]*{n}" for v, n in runs) + ")"


def _data() -> Mapping[str, Any]:
    return fields.table("megatron_arguments")


def notes() -> Mapping[str, Any]:
    """Return what the table cannot say (megatron_notes.json).

    `differences`: fields that arguments cannot make equal to Bridge's, and that change no result, each with the reason.
    `decides`: the fields that an argument decides, where these are not those of the table or of its name.
    `dropped`: arguments that no field takes, with the reason. `unwritten`: arguments that no script gets, likewise.
    `completed`: arguments that `validate_args` completes from others before a log prints them.
    """
    return fields.table("megatron_notes")


def core() -> str:
    """Return the release of Megatron-Core that the table is of."""
    return _data()["core"]


def unread() -> Mapping[str, Any]:
    """Return the model's fields that no argument decides, with their values."""
    return _data()["unread"]


@cache
def arguments() -> tuple[Argument, ...]:
    """Return all arguments in the order of Megatron-LM's parser."""
    return tuple(Argument(dest, **entry) for dest, entries in _data()["arguments"].items() for entry in entries)


@cache
def by_flag() -> Mapping[str, Argument]:
    """Return each argument by each of its flags."""
    return {flag: a for a in arguments() for flag in a.flags}


@cache
def by_field() -> Mapping[str, tuple[Argument, ...]]:
    """Return the arguments that a field reads, by its path."""
    found: dict[str, tuple[Argument, ...]] = {}
    for a in arguments():
        for path in (*a.fields, *([a.named] if a.named else [])):
            found[path] = (*found.get(path, ()), a)
    return found


@cache
def flags(release: str) -> Mapping[str, tuple[str, Any]]:
    """Return the name of the value and the default of each flag of a release of Megatron-Core."""
    newest = {flag: (a.dest, a.default) for flag, a in by_flag().items()}
    if release == core():
        return newest
    other = fields.table("megatron_flags")[release]
    kept = {flag: v for flag, v in newest.items() if flag not in other["lacks"]}
    changed = {flag: (newest[flag][0], default) for flag, default in other["defaults"].items()}
    return {**kept, **changed, **{flag: (dest, default) for flag, (dest, default) in other["only"].items()}}
