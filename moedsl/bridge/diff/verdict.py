"""Whether two sides are the same experiment, in a sentence for each thing that decides it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from moedsl.bridge.diff.sources import Side
from moedsl.facts import axes
from moedsl.rules.effects import BENCHMARK, EXECUTION, EXPERIMENT, UNKNOWN

Json = Mapping[str, Any]


def verdict(groups: Mapping[str, Sequence[Json]], bench: Mapping[str, Sequence[Json]]) -> dict[str, Any]:
    """Whether it is the same experiment (None: not known), which sides are benchmarks, and a sentence for each."""
    only = [s for s in ("a", "b") if _names_of(bench[s]) - _names_of(bench["b" if s == "a" else "a"])]
    differs = _names_of([*groups[EXPERIMENT], *groups[BENCHMARK]])
    same = False if differs else None if groups[UNKNOWN] else True
    return {"same_experiment": same, "benchmark_only": only, "says": [*_says(groups, bench, only, same)]}


def refusals(a: Side, b: Side) -> Iterator[str]:
    """Report what Bridge refuses, and how the other side is compared then."""
    for name, side in (("A", a), ("B", b)):
        if side.refused:
            yield f"Bridge refuses {name}: {side.refused}"
    if a.as_built or b.as_built:
        yield "so recipes are compared as built, before what runtime_config_update would set"


def _names_of(found: Sequence[Json]) -> set[str]:
    return {str(x["name"]) for x in found}


def _says(
    groups: Mapping[str, Sequence[Json]], bench: Mapping[str, Sequence[Json]], only: Sequence[str], same: bool | None
) -> Iterator[str]:
    shared = _names_of(bench["a"]) & _names_of(bench["b"])
    for side in only:
        why = ", ".join(f"{x['name']} {axes.show(x['value'])}" for x in bench[side] if x["name"] not in shared)
        yield f"{side.upper()} is benchmark-only ({why}): its speed is not that of training, its loss is meaningless"
    if same is False and (groups[EXPERIMENT] or not only):
        yield "different experiments: do not compare losses"
    elif same is None:
        unknown = f"no rule states the effect of {len(groups[UNKNOWN])} of the fields that differ"
        yield f"it is unknown whether this is the same experiment: {unknown}"
    elif same and groups[EXECUTION]:
        yield "the same experiment, run differently"
    elif same:
        yield "no difference in what was compared"
    if shared:
        yield f"both are benchmarks by {', '.join(sorted(shared))}: neither loss is meaningful"
