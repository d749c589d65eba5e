"""Find the statement of a run that decides a field of Bridge, with the value that a `set` of the field asks for."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import product
from typing import Any

from attrs import evolve

from moedsl.emit.settings import decided_fields, sections
from moedsl.facts import axes
from moedsl.facts.symbols import ABSENT_HERE, RUN
from moedsl.facts.values import normalise
from moedsl.lang.foreign_syntax import STATEMENTS
from moedsl.lang.printer import quote
from moedsl.planner.model.plan import Plan

SHOWN = 2
"""The most statements to offer."""
_KEYWORDS = {"global_batch": "batch", **dict.fromkeys(("freeze_vision", "freeze_projection", "freeze_language"), "vlm")}
"""The statements of words that are not their names."""

_OF_HUB = {
    "dataset.hf_dataset.dataset_name": "write `data hf {}`",
    "dataset.hf_dataset.path_or_dataset": "write `data hf {}`",
    "dataset.hf_dataset.split": "write `split={}` after the name of `data hf`",
    "dataset.hf_dataset.subset": "write `subset={}` after the name of `data hf`",
}
_OF_HUB_OTHERWISE = "`data hf` names one data set, with at most one split and one subset; change more in the recipe"


def instead(plan: Plan, path: str, value: Any, by: str = "set") -> str:
    """The help for a `set` of a field that the plan decides, or for the `derive` of a rule."""
    word = next((s.word for _, group in sections(plan) for s in group if s.path == path and s.word), "")
    if word == "pack":
        return "write `pack=on` or `pack=off` after the folder or name of `data`"
    if word == "data" and path in _OF_HUB:
        return _OF_HUB[path].format(quote(value)) if isinstance(value, str) and value else _OF_HUB_OTHERWISE
    if word in ABSENT_HERE:
        return ABSENT_HERE[word]
    keyword = _KEYWORDS.get(word, word)
    if keyword not in (*STATEMENTS, *axes.PINNED):
        return f"drop this `{by}`: the plan decides this with other fields"
    if found := [*dict.fromkeys(_statements(plan, path, value, word))][:SHOWN]:
        return f"write {' or '.join(f'`{s}`' for s in found)}; `{by}` is for fields that the plan does not decide"
    return f"drop this `{by}`: `{keyword}` decides the field, and none of its values makes it {axes.written(value)}"


def _statements(plan: Plan, path: str, value: Any, word: str) -> Iterator[str]:
    """The statements that give the field this value; those with a second policy if one is not enough."""
    section = next((s for s in ("layout", "batch", "policy") if hasattr(getattr(plan, s), word)), None)
    if section is None or word not in (*axes.PINNED, *RUN):
        return
    own = [{word: v} for v in _values(word, value)]
    second = [{a: v} for a in axes.POLICY if a in axes.BY_NAME and a != word for v in _values(a, None)]
    pairs = ({**a, **b} for a, b in product(own, second if section == "policy" else []))
    for changes in (own, pairs):
        made = [
            c for c in changes if _makes(evolve(plan, **{section: evolve(getattr(plan, section), **c)}), path, value)
        ]
        yield from map(_stated, made)
        if made:
            return


def _makes(plan: Plan, path: str, value: Any) -> bool:
    found = decided_fields(plan, every=True)
    return path in found and found[path] == normalise(path, value)


def _values(word: str, value: Any) -> list[Any]:
    """The values of a word that may give a field a value."""
    axis, words = axes.BY_NAME.get(word), RUN[word].words if word in RUN else ()
    kind = axis.kind if axis else ""
    if axis and kind == "set":
        listed = [value] if isinstance(value, list) and {*value} <= {*axis.words} else []
        return [*listed, [], *([w] for w in axis.words)]
    if axis and kind in ("enum", "flag"):
        return [*axis.words] or [False, True]
    return [*words] or [value, *([axis.off] if axis else [])]


def _stated(values: Mapping[str, Any]) -> str:
    """Write the values as one statement, or as pins."""
    (word, value), *rest = values.items()
    keyword = _KEYWORDS.get(word, word)
    if keyword in STATEMENTS and not rest:
        return f"{keyword} {axes.written(value)}"
    return f"pin {' '.join(f'{n}={_pinned(v)}' for n, v in values.items())}"


def _pinned(value: Any) -> str:
    """Write a value of a pin: a set of one word without brackets, a text in quotes."""
    text = axes.written(value[0] if isinstance(value, list) and len(value) == 1 else value)
    return f'"{text}"' if isinstance(value, str) and not value.isidentifier() else text
