"""Write a rehearsal as a run file with every axis pinned, so that rules and emitter handle it like any other."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import attrs

from moedsl.facts import axes
from moedsl.facts.facts import Model
from moedsl.rehearse.shrink import Rehearsal


def text(r: Rehearsal) -> str:
    """Write the run file."""
    sizes = {a.name: r.layout[a.name] for a in axes.AXES if a.section == "layout"}
    pins = {**sizes, "micro_batch": r.micro_batch, **r.policy}
    if r.pipeline_layout:
        pins["pipeline_layout"] = r.pipeline_layout
    lines = [
        f"# What a rehearsal of {r.name} runs: the same shape, small.",
        *_declaration(r.model),
        "",
        f"model {r.model.name}",
        f"{r.hardware} x {r.ranks}",
        f"seq {r.seq}",
        f"batch {r.global_batch}",
        f"routing {r.routing}",
        "pin " + " ".join(f"{name}={_value(name, v)}" for name, v in pins.items()),
        *(f"set {path} = {_value(path, v)}" for path, v in r.sets.items()),
        "fit first",
    ]
    return "\n".join(lines) + "\n"


def _declaration(m: Model) -> Iterable[str]:
    """Write every fact that differs from its default."""
    yield f"model {m.name} {{"
    for fact in attrs.fields(Model):
        value = getattr(m, fact.name)
        if fact.name not in ("name", "vision") and value != fact.default:
            yield f"  {fact.name} {_word(value) if fact.name in ('family', 'attention') else _value(fact.name, value)}"
    yield "}"


def _word(value: Any) -> str:
    return str(value)


def _value(name: str, value: Any) -> str:
    """Write a value in the language: words bare, texts in quotes, an empty set as none."""
    if name in axes.BY_NAME or isinstance(value, list):
        return axes.written(value)
    if value is None:
        return "none"
    if isinstance(value, bool):
        return "true" if value else "false"
    return quoted(value) if isinstance(value, str) else str(value)


def quoted(value: str) -> str:
    """Write a string literal of the language."""
    return '"' + value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n") + '"'
