"""List the ids of the stdlib that Python names. The stdlib does not load without each of them."""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum

from moedsl.lang import ast


class RuleId(StrEnum):
    """A rule: library, block and name."""

    FITS = "std.memory.fits"
    FITS_AT_BEST = "std.memory_at_best.fits"
    FITS_AT_LOW = "std.memory_at_low.fits"
    BATCH = "std.batch.batch_over_dp"
    MOCK_DATA = "std.vlm_measured.mock_data_twice_as_fast"
    FROZEN_ENCODER = "std.vlm_frozen.vision_encoder"
    """Advice for a vision encoder that takes a large share of the step."""
    WALL_MEMORY = "std.walls.memory"
    WALL_COMMUNICATION = "std.walls.communication"
    WALL_HOST = "std.walls.host"
    WALL_COMPUTE = "std.walls.compute"
    LAUNCH_HARDWARE = "std.launch.hardware"
    LAUNCH_WHOLE_NODES = "std.launch.whole_nodes"
    LAUNCH_ENOUGH_NODES = "std.launch.enough_nodes"
    CHECKPOINTS_OUTLIVE = "std.checkpoints.checkpoints_outlive"
    PODS_THAT_FAIL = "std.pods_that_fail.none_expected"
    EXPERTS_BY_RDMA = "std.experts_between_nodes.reached_by_rdma"
    EXPERTS_ON_EFA = "std.experts_between_nodes.hybridep_has_verbs"
    SEGMENT_HYBRIDEP = "std.segment.hybridep_holds"
    SEGMENT_EXPERT_GROUPS = "std.segment.expert_groups_hold"


NEEDS: dict[str, str] = {RuleId.FITS: "up to", RuleId.FITS_AT_BEST: "about", RuleId.FITS_AT_LOW: "at least"}
"""The laws on the memory that remains in one case of the estimate, with a word for what a layout needs in that case."""


class Block(StrEnum):
    """The prefix of the ids of a block's rules."""

    WALLS = "std.walls."
    LADDER = "std.ladder."
    LADDER_ALONE = "std.ladder_alone."
    """For a file with one phase."""


class LetName(StrEnum):
    """The name of a `let`."""

    FP8_HERE = "fp8_here"
    MOST_LOST_MINUTES = "most_lost_minutes"
    SAMPLE_MULTIPLE = "sample_multiple"
    SAVES_ASYNC = "saves_async"
    SHARED_MESH = "shared_mesh"
    TOKENIZER_ENTRIES = "tokenizer_entries"
    VISION_SHARE_FLOOR = "vision_share_floor"
    WALL_FLOOR = "wall_floor"


def require_known(blocks: Iterable[tuple[str, ast.RulesDecl]]) -> None:
    """Raise if the stdlib's blocks of rules do not have an id that Python names."""
    members = [(f"{prefix}.{b.name.id}.", m.name.id, m) for prefix, b in blocks for m in b.members if m.name]
    lets = {name for _, name, m in members if isinstance(m, ast.Let)}
    known = {block + name for block, name, _ in members} | {block for block, _, _ in members} | lets
    unknown = [id.value for kind in (RuleId, Block, LetName) for id in kind if id not in known]
    if unknown:
        raise LookupError(f"the stdlib has no {', '.join(unknown)}, which moedsl/rules/ids.py names")
