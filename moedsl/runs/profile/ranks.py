"""Compare ranks: those that launch the same hold the same part of the model, and others are not compared with them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from moedsl.runs.profile.kinds import COMPUTE

Json = dict[str, Any]
DIFFERS = "optimizer"
"""The distributed optimizer gives each rank of a part other weights, and so other launches."""
SAME = 0.05
"""Ranks of one part launch the same classes of compute equally often, within this share: experts get other tokens."""


def parts(reports: Sequence[Json]) -> list[list[int]]:
    """Group the ranks by what they launch, in the order of their first rank."""
    out: list[list[int]] = []
    prints = [_launches(r) for r in reports]
    for i, mine in enumerate(prints):
        home = next((part for part in out if _alike(prints[part[0]], mine)), None)
        if home is None:
            out.append([i])
        else:
            home.append(i)
    return out


def representative(reports: Sequence[Json], part: Sequence[int]) -> int:
    """Return the rank of a part with the most time outside communication: the others wait for it."""
    return max(part, key=lambda i: reports[i]["step_s"] - reports[i]["walls"]["communication"]["s"])


def spread(reports: Sequence[Json], groups: Sequence[Sequence[int]]) -> list[Json]:
    """Return the slowest and the fastest rank of each part that has several, by their time outside communication, and
    in how many steps the slowest is that."""
    out: list[Json] = []
    for n, part in enumerate(groups):
        own = {i: reports[i]["steps"]["own_each_s"] for i in part}
        mean = {i: sum(each) / len(each) for i, each in own.items()}
        slowest, fastest = (choose(part, key=lambda i: mean[i]) for choose in (max, min))
        same = [*zip(*own.values(), strict=False)]
        if len(part) > 1:
            out.append({"part": n, "slowest": reports[slowest]["trace"], "slowest_s": mean[slowest],
                        "fastest": reports[fastest]["trace"], "fastest_s": mean[fastest], "steps": len(same),
                        "slowest_in": sum(max(s) == s[part.index(slowest)] for s in same)})  # fmt: skip
    return out


def survey(reports: Sequence[Json], groups: Sequence[Sequence[int]]) -> list[Json]:
    """Return a line for each rank, and its timeline."""
    part_of = {i: n for n, part in enumerate(groups) for i in part}
    return [
        {"trace": r["trace"], "rank": r["rank"], "part": part_of[i], "step_s": r["step_s"], **r["device"],
         "timeline": r["timeline"]}
        for i, r in enumerate(reports)
    ]  # fmt: skip


def _launches(r: Json) -> Mapping[str, float]:
    return {c["class"]: c["launches"] for c in r["classes"] if c["wall"] == COMPUTE and c["class"] != DIFFERS}


def _alike(a: Mapping[str, float], b: Mapping[str, float]) -> bool:
    return all(abs(a.get(n, 0) - b.get(n, 0)) <= max(SAME * max(a.get(n, 0), b.get(n, 0)), 1) for n in {*a, *b})
