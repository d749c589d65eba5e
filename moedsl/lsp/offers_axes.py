"""Offer axes to pin and sweep, and the values that are legal with the rest of the run."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial

from moedsl.facts import axes
from moedsl.lsp import describe, legal
from moedsl.lsp.place import Around, Offer
from moedsl.rules.check.check import SWEEPABLE


def pin(a: Around) -> Iterator[Offer]:
    """Offer names that are not pinned yet, and after `=` the values of the name."""
    name, inside = _binding(a.said)
    if name is not None:
        yield from _values(a, name, inside)
        return
    taken = {a.said[i - 1] for i, text in enumerate(a.said) if text == "="}
    taken |= {*(a.program.pins if a.program else ())}
    for axis in axes.PINNED:
        if axis not in taken:
            yield Offer(axis, "Property", axis_detail(axis), partial(describe.name, axis), insert=f"{axis}=")


def axis_detail(name: str) -> str:
    """Describe an axis in a line."""
    axis = axes.BY_NAME.get(name)
    return axis.doc if axis else "follows from the layout"


def _binding(said: Sequence[str]) -> tuple[str | None, bool]:
    """The name whose value is being written, and whether that is inside a list."""
    if "=" not in said:
        return None, False
    at = len(said) - 1 - [*reversed(said)].index("=")
    rest = [*said[at + 1 :]]
    inside = rest.count("[") > rest.count("]")
    return (said[at - 1], inside) if not rest or inside else (None, False)


def _values(a: Around, name: str, inside: bool) -> Iterator[Offer]:
    """Offer the values of an axis; in a list, the words that it does not have yet."""
    axis = axes.BY_NAME.get(name)
    if axis is None:
        yield from (Offer(w, "EnumMember", name) for w in ("true", "false") if name == "sequence_parallel")
    elif inside:
        yield from (Offer(w, "EnumMember", axis.name) for w in axis.words if w not in a.said)
    else:
        yield from of_axis(a, axis)


def of_axis(a: Around, axis: axes.Axis) -> Iterator[Offer]:
    """Offer the values of an axis; the legal ones first if the run is known."""
    gpus = legal.gpus_of(a.program, a.document.plan or a.document.last) if a.program else None
    if a.program is None or gpus is None:
        texts = [legal.written(axis, c) for c in range(len(axis.words) if axis.kind == "enum" else 2)]
        texts = texts if axis.kind in ("enum", "flag") else [*axis.words, "none"] if axis.words else []
        yield from (Offer(t, "EnumMember", axis.name) for t in texts)
    else:
        for v in legal.values(a.program, axis.name, gpus, _already(a.said)):
            detail = "legal with the rest of the run" if v.legal else "no legal layout with the rest of the run"
            yield Offer(v.text, "Value", detail)
    if axis.kind == "set":
        yield Offer("[...]", "Snippet", f"a set of {axis.name} modules", insert="[]", snippet="[$0]")


def _already(said: Sequence[str]) -> dict[str, int]:
    """The pins of the same statement as codes, without unreadable values."""
    out: dict[str, int] = {}
    for name, equal, value in zip(said, said[1:], said[2:], strict=False):
        axis = axes.BY_NAME.get(name)
        if equal == "=" and axis is not None and value.isdigit() and axis.kind == "int":
            out[name] = int(value)
        elif equal == "=" and axis is not None and axis.kind == "enum" and value in axis.words:
            out[name] = axis.encode(value)
    return out


def swept(a: Around) -> Iterator[Offer]:
    """Offer axes to vary, and after `in` their values."""
    if len(a.said) == 1:
        composites = axes.COMPOSITES if a.said[0] == "isolate" else {}
        for name in (*axes.BY_NAME, *SWEEPABLE, *composites):
            yield Offer(name, "Property", axis_detail(name) if name in axes.BY_NAME else "", insert=f"{name} in ")
    elif "in" in a.said and a.said[1] in axes.COMPOSITES:
        yield from (Offer(w, "EnumMember", a.said[1]) for w in axes.COMPOSITES[a.said[1]] if w not in a.said)
    elif "in" in a.said and a.said[1] in axes.BY_NAME:
        yield from (o for o in of_axis(a, axes.BY_NAME[a.said[1]]) if o.label not in a.said[3:])
