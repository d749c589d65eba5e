"""Enumerate the space of a compiled problem: the legal meshes and the legal policies.

The order matters to the search: it visits the meshes that divide memory most first (`most_divided_first`), or those
with the best bounds, so that a good layout is known early and the rest can be skipped.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from moedsl.facts.axes import BY_NAME, MESH, SIZES, WEIGHTS
from moedsl.solver.laws import Compiled, Law, allowed, obeying
from moedsl.solver.question import Floats, TopK, ignoring
from moedsl.solver.table import Mask, Table, different
from moedsl.support import limits

MOST = 1_000_000
"""The most rows that a table grows to before laws take some away: a row with its lets takes some 60 bytes."""
MOST_POLICIES = 1_000_000
"""The most combinations of policies, all of which a search holds at once."""


def mesh_table(c: Compiled) -> Table:
    """Enumerate all legal meshes."""
    return _table(c.empty(), _domains(c, MESH), _unpriced(c))


def weights_table(c: Compiled) -> Table:
    """Enumerate what decides the weights of a rank: the legal combinations of `WEIGHTS`."""
    return _table(c.empty(), _domains(c, WEIGHTS), _unpriced(c))


def pipelines_table(c: Compiled) -> Table:
    """Enumerate what decides the microbatches and the work of a rank: the legal meshes without VPP."""
    return _table(c.empty(), _domains(c, [name for name in MESH if name != "vpp"]), _unpriced(c))


def halves(c: Compiled) -> tuple[Table, Table]:
    """Enumerate the legal pipelines, and what decides the work of a layer: the legal meshes without them."""
    pipes = [name for name in MESH if BY_NAME[name].mesh == "pipeline"]
    rest = [name for name in MESH if name not in pipes]
    first, second = (_table(c.empty(), _domains(c, names), _unpriced(c)) for names in (pipes, rest))
    return first, second


def meshes_of(c: Compiled, some: Table) -> Table:
    """Enumerate the legal meshes of some rows of a table of fewer axes."""
    left = [law for law in _unpriced(c) if not law.needs <= some.axes.keys()]
    return _table(some, _domains(c, [name for name in MESH if name not in some.axes]), left)


def _domains(c: Compiled, names: Iterable[str]) -> dict[str, NDArray[np.int64]]:
    return {name: np.sort(c.problem.domains[name]) for name in names}


def _unpriced(c: Compiled) -> list[Law]:
    return [law for law in c.laws if not law.priced]


def _table(
    table: Table, domains: Mapping[str, NDArray[np.int64]], laws: Sequence[Law], most: float = math.inf
) -> Table:
    """Combine the rows of a table with the combinations of more axes that obey laws on all of them, each law as soon as
    its axes are bound."""
    alone, bound, pending = table.without_axes(), frozenset(table.axes), laws
    for name, domain in domains.items():
        bound |= {name}
        ready = [law for law in pending if law.needs <= bound]
        pending = [law for law in pending if not law.needs <= bound]
        values = allowed(alone, name, domain, [law for law in ready if law.needs <= {name}])
        ready = [law for law in ready if not law.needs <= {name}]
        parts, rows = list[Table](), 0
        for part in table.parts(max(1, MOST // max(1, len(values)))):
            limits.go_on()
            parts.append(obeying(part.grow(name, values), ready))
            rows += parts[-1].rows
            if rows > most:
                raise limits.too_large(f"has more than {most:,} combinations of policies")
        table = Table.joined(parts)
    return table


def combinations_of(policies: Table, names: tuple[str, ...]) -> dict[str, NDArray[np.int64]]:
    """The columns of some policies, with each combination once."""
    distinct = policies.distinct(names)
    return {n: distinct.axes[n] for n in names}


def policy_table(c: Compiled, names: tuple[str, ...]) -> Table:
    """Enumerate the combinations of policies that obey the laws on policies alone."""
    domains = {name: c.problem.domains[name] for name in names}
    laws = [law for law in c.laws if law.needs and law.needs <= frozenset(names)]
    return _table(c.empty(), domains, laws, MOST_POLICIES)


FIRST_BLOCK = 2048
"""Meshes in the first block, whose memory is bounded first."""
LARGEST_CHUNK = 120_000
"""The most meshes or rows at a time."""
GROWTH = 4
"""Growth factor of blocks, and of each question's share of a chunk."""
GUESSED, DIVIDED_GROWTH = 64, 64
"""Meshes in the first of several growing parts, and the growth of the next ones."""


def most_divided_first(meshes: Table) -> Iterator[NDArray[np.intp]]:
    """Split the meshes into growing parts; those that probably need the least memory on a rank are first."""
    return growing(np.argsort(share_of(meshes), kind="stable"))


def growing(left: NDArray[np.intp]) -> Iterator[NDArray[np.intp]]:
    """Split positions into growing parts."""
    size = GUESSED
    while len(left):
        yield left[:size]
        left, size = left[size:], size * DIVIDED_GROWTH


def share_of(meshes: Table) -> NDArray[np.floating[Any]]:
    """About the share of a step that each rank of a mesh holds."""
    pieces = [meshes.axes[name] for name in SIZES]
    return np.asarray(meshes.axes["micro_batch"] / np.prod(pieces, axis=0, dtype=np.float64))


def in_turns(bounds: Floats, queries: Sequence[TopK], able: Sequence[Mask]) -> Iterator[NDArray[np.intp]]:
    """Blocks of positions in the order of their bounds, the next ones of each question that has room for them."""
    new, size = np.ones(bounds.shape[1], dtype=bool), max(1, FIRST_BLOCK // len(queries))
    alike: dict[tuple[bytes, int | None], list[TopK]] = {}
    for k, mask in zip(queries, able, strict=True):
        alike.setdefault((mask.tobytes(), k.ignored), []).append(k)
    orders = [
        _while_room(ks, bounds, _in_order(ignoring(bounds, ignored), np.frombuffer(mask, dtype=bool), size))
        for (mask, ignored), ks in alike.items()
    ]
    while parts := [at for order in orders for at in itertools.islice(order, 1)]:
        block = different(np.concatenate(parts)) if len(parts) > 1 else parts[0]
        block = block[new[block]]
        new[block] = False
        yield block[np.lexsort(bounds[::-1, block])] if len(parts) > 1 else block


def _while_room(
    queries: Sequence[TopK], bounds: Floats, blocks: Iterable[NDArray[np.intp]]
) -> Iterator[NDArray[np.intp]]:
    """The blocks, until no question has room for the first position of one."""
    return itertools.takewhile(lambda at: any(k.room(bounds[:, at[:1]])[0] for k in queries), blocks)


def _in_order(bounds: Floats, mask: Mask, size: int = FIRST_BLOCK) -> Iterator[NDArray[np.intp]]:
    """Positions in a mask by their columns of bounds, in growing blocks; each block is sorted when it is needed."""
    left = np.flatnonzero(mask)
    while len(left):
        first = bounds[0, left]
        early = first <= np.partition(first, size - 1)[size - 1] if len(left) > size else np.ones(len(left), dtype=bool)
        part, left = left[early], left[~early]
        order = part[np.lexsort(bounds[::-1, part])]
        while len(order):
            block, order = order[:size], order[size:]
            yield block
            size = min(size * GROWTH, LARGEST_CHUNK)
