"""Find the keyword of the plan that decides a field of the recipe, by Bridge's name of the field."""

from __future__ import annotations

from attrs import frozen

from moedsl.emit.settings import resets, sections
from moedsl.facts.values import python
from moedsl.planner.model.plan import Plan


@frozen
class Field:
    """A field that the recipe sets: its full path, its value as Python, and the keyword that decides it, if any."""

    path: str
    value: str
    word: str | None


def field(plan: Plan, name: str) -> Field | None:
    """Find a field of a plan's recipe by its path, or by the end of its path (``tensor_model_parallel_size``)."""
    matching = [s for _, settings in sections(plan) for s in settings if _names(s.path, name)]
    if matching:
        return Field(matching[-1].path, python(matching[-1].value), matching[-1].word)
    reset = resets(plan.target.bridge)
    path = next((p for p in reset if _names(p, name)), None)
    return None if path is None else Field(path, python(reset[path]), "reset")


def _names(path: str, name: str) -> bool:
    return path == name or path.endswith("." + name)


def known(plan: Plan) -> list[str]:
    """Every path that the recipe sets."""
    return [s.path for _, settings in sections(plan) for s in settings]
