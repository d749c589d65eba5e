"""Tell of which rank and pipeline stage a snapshot is: it states neither itself."""

from __future__ import annotations

import re
from pathlib import Path

from attrs import frozen

from moedsl.facts import rank_groups
from moedsl.planner.model.plan import Plan

RANK = re.compile(r"_(?:oom_rank-)?(\d{1,7})\.[^.]+$")
"""What Bridge adds to the name of each rank's file (bridge training/utils/train_utils.py:225, :840)."""
PP_FIRST = "dist.use_tp_pp_dp_mapping"
ONLY, GIVEN, BY_NAME, NEAREST = "only", "given", "name", "nearest"
"""How the stage is known: the plan has one, the user names it, by the rank in the file's name, or by the peak."""


@frozen
class Given:
    """A snapshot as a person names it: FILE, or FILE=STAGE."""

    path: Path
    stage: int | None

    @classmethod
    def of(cls, text: str) -> Given:
        path, sign, stage = text.rpartition("=")
        if sign and stage.isdecimal() and len(stage) < 8 and not Path(text).exists():
            return cls(Path(path), int(stage))
        return cls(Path(text), None)

    @property
    def rank(self) -> int | None:
        """The rank in the file's name, as Bridge writes it."""
        found = RANK.search(self.path.name)
        return int(found[1]) if found else None


def stage_of(rank: int | None, given: int | None, plan: Plan) -> tuple[int, str] | None:
    """Return the stage of a snapshot in a plan, and how it is known; None if it is not."""
    if given is not None:
        return given, GIVEN
    if plan.layout.pp == 1:
        return 0, ONLY
    if rank is None or rank >= plan.gpus:
        return None
    groups = rank_groups.groups(plan.layout.to_json(), plan.set.get(PP_FIRST) is True)
    return next(group.index(rank) for group in groups["PP"] if rank in group), BY_NAME
