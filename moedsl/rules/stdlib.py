"""Load the standard library: parsed, collected and checked once, then read from a compiled file.

`compiled.py` decides where that file is and when it is rebuilt. Models, hardware and calibrations are unpickled when a
name is used, because a plan needs few of them. Syntax trees of whole files are unpickled only for the language server,
for rules of recipes, and where a run file's `let` may change what a rule of the library means.

The stdlib ids that Python code uses are listed here; the stdlib does not load if one is missing.
"""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Iterable, Mapping, Sequence
from enum import StrEnum
from functools import lru_cache
from typing import Any, cast

from attrs import frozen

from moedsl.facts.calibration import Constants
from moedsl.lang import ast, parser
from moedsl.rules import collect, library
from moedsl.rules.declarations import EVERY
from moedsl.rules.library import Library
from moedsl.rules.rule import Collected
from moedsl.support import compiled, resources
from moedsl.support.compiled import Packed
from moedsl.support.diagnostics import Diagnostic
from moedsl.support.source import Source

PACKAGES = ("support", "lang", "facts", "rules")
"""The packages that the compiled library depends on."""
LIBRARY = "stdlib"
"""Name of the compiled file."""
TABLES = ("models", "hardware", "clusters", "calibrations", "profiles")


@frozen
class Kept:
    """The compiled content of the stdlib."""

    tables: Mapping[str, Packed[Any]]
    """The declarations by name, for each table of a library."""
    constants: Packed[Constants]
    collected: Collected
    """The rules of a run and the scope that they see."""
    sources: dict[str, Source]
    modules: Packed[ast.Module]
    """The syntax tree of each file."""


def load() -> Library:
    """Load the whole stdlib. It is not cached if it has an error; raises LookupError if an id that Python uses is
    missing."""
    stamp = _stamp()
    kept = _kept(stamp)
    if isinstance(kept, Library):
        _kept.cache_clear()
        return kept
    tables: dict[str, Any] = {n: ChainMap({}, cast(dict[str, Any], t)) for n, t in kept.tables.items()}
    return Library(
        **tables, sources={**kept.sources}, collected=kept.collected, constants_known=kept.constants,
        blocks=lambda: _blocks(stamp),
    )  # fmt: skip


def parse(source: Source) -> tuple[ast.Module | None, tuple[Diagnostic, ...]]:
    """Parse a file of the stdlib, or return the compiled module of the same text."""
    kept = _kept(_stamp())
    if isinstance(kept, Library) or kept.sources.get(source.name) != source:
        return parser.parse(source)
    return kept.modules[source.name], ()


def _stamp() -> bytes:
    return compiled.stamp(PACKAGES, map(str, [*resources.stdlib_files(), resources.grammar_file()]))


@lru_cache(maxsize=1)
def _kept(stamp: bytes) -> Kept | Library:
    """Return the compiled library; if there is none, parse and check the files and save it.

    If the files have errors, return a Library with them instead.
    """
    kept = compiled.load(LIBRARY, stamp)
    if isinstance(kept, Kept):
        return kept
    parsed = {s: parser.parse(s) for s in _sources()}
    found = library.of_sources(parsed, parsed.__getitem__)
    require_known(found.own_rules)
    known, scope, wrong = collect.collect(found.rules)
    if wrong or found.diagnostics:
        return found
    read = {arch: found.constants(arch) for arch in found.calibrations if EVERY in found.calibrations}
    constants = {arch: made for arch, (made, mistakes) in read.items() if made and not mistakes}
    tables = {name: Packed(getattr(found, name)) for name in TABLES}
    modules = {s.name: module for s, (module, _) in parsed.items() if module}
    sources = {s.name: s for s in parsed}
    kept = Kept(tables, Packed(constants), Collected(known, scope), sources, Packed(modules))
    compiled.save(LIBRARY, stamp, kept)
    return kept


@lru_cache(maxsize=1)
def _blocks(stamp: bytes) -> Sequence[tuple[str, ast.RulesDecl]]:
    """Return the stdlib's rules blocks."""
    return library.of_sources(_sources(), parse).own_rules


def _sources() -> list[Source]:
    return library.sources(resources.stdlib_files())


class RuleId(StrEnum):
    """The id of a rule: library, block and name."""

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
"""The laws on the memory left in one case of the estimate, with the word for what a layout needs in that case."""


class Block(StrEnum):
    """The id prefix of a block's rules."""

    WALLS = "std.walls."
    LADDER = "std.ladder."
    LADDER_ALONE = "std.ladder_alone."
    """For a file with a single phase."""


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
    """Raise LookupError if the stdlib's rules blocks lack an id that Python uses."""
    members = [(f"{prefix}.{b.name.id}.", m.name.id, m) for prefix, b in blocks for m in b.members if m.name]
    lets = {name for _, name, m in members if isinstance(m, ast.Let)}
    known = {block + name for block, name, _ in members} | {block for block, _, _ in members} | lets
    unknown = [id.value for kind in (RuleId, Block, LetName) for id in kind if id not in known]
    if unknown:
        raise LookupError(f"the stdlib has no {', '.join(unknown)}, which moedsl/rules/stdlib.py names")
