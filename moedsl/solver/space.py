"""Enumerate the legal meshes and policies of a compiled problem, and name the fastest and the smallest policies.

The order matters to the search: it visits the meshes that divide memory most first (`most_divided_first`), or those
with the best bounds, so that a good layout is known early and the rest can be skipped.

Every bound of the search is a price with the fastest or smallest policies: no policy that a mesh may have is faster, or
uses less memory.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Literal, Protocol

import numpy as np
from numpy.typing import NDArray

from moedsl.facts import axes
from moedsl.facts.axes import MEMORY_POLICIES, MESH, SIZES, TRANSPORT_POLICIES
from moedsl.rules.evaluators import Column
from moedsl.solver.laws import Compiled, Law, Mask, Table, allowed, different, obeyed, obeying
from moedsl.support import limits

MOST = 1_000_000
"""Maximum rows of a table before laws take some away; a row with its lets takes some 60 bytes."""
MOST_POLICIES = 1_000_000
"""Maximum combinations of policies, all of which a search holds at once."""


def mesh_table(c: Compiled, names: Sequence[str] = MESH, some: Table | None = None) -> Table:
    """Enumerate all legal meshes, or the legal combinations of some of their axes; with `some`, those of its rows."""
    known = frozenset[str]() if some is None else some.axes.keys()
    laws = [law for law in c.laws if not law.priced and not (known and law.needs <= known)]
    return _table(c, tuple(name for name in names if name not in known), laws, some=some)


def policy_table(c: Compiled, names: tuple[str, ...]) -> Table:
    """Return the combinations of policies that obey the laws on policies only."""
    return _table(c, names, [law for law in c.laws if law.needs and law.needs <= {*names}], MOST_POLICIES)


def _table(
    c: Compiled, names: tuple[str, ...], laws: Sequence[Law], most: float = math.inf, some: Table | None = None
) -> Table:
    """Combine the values of some axes that obey the laws on them, each law as soon as its axes are bound; with `some`,
    its rows with them."""
    table = c.empty() if some is None else some
    bound, pending = frozenset(table.axes), laws
    for name in names:
        domain = c.problem.domains[name]
        domain = domain if name in axes.POLICY else np.sort(domain)
        bound |= {name}
        ready = [law for law in pending if law.needs <= bound]
        pending = [law for law in pending if not law.needs <= bound]
        values = allowed(c.empty(), name, domain, [law for law in ready if law.needs <= {name}])
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
    """Return the columns of some policies, with each combination once."""
    distinct = policies.distinct(names)
    return {n: distinct.axes[n] for n in names}


FIRST_BLOCK = 2048
"""Meshes in the first block, whose memory is bounded first."""
LARGEST_CHUNK = 120_000
"""Maximum meshes or rows at a time."""
GROWTH = 4
"""Growth factor of blocks, and of each question's share of a chunk."""
GUESSED, DIVIDED_GROWTH = 64, 64
"""Meshes in the first of several growing parts, and the growth factor of the next ones."""


def most_divided_first(meshes: Table) -> Iterator[NDArray[np.intp]]:
    """Split the meshes into growing parts; those that probably need the least memory on a rank are first."""
    return growing(np.argsort(share_of(meshes), kind="stable"))


def share_of(meshes: Table) -> NDArray[np.floating[Any]]:
    """About the share of a step that each rank of a mesh holds: it is smallest where a step is in the most pieces."""
    pieces = np.prod([meshes.axes[name] for name in SIZES], axis=0, dtype=np.float64)
    return np.asarray(meshes.axes["micro_batch"] / pieces)


def growing(left: NDArray[np.intp]) -> Iterator[NDArray[np.intp]]:
    """Split positions into growing parts."""
    size = GUESSED
    while len(left):
        yield left[:size]
        left, size = left[size:], size * DIVIDED_GROWTH


Domains = Mapping[str, NDArray[np.int64]]
Policies = Sequence[Mapping[str, int]]
"""Values of some policies."""
SLACK = 1e-9
"""Maximum share by which rounding can lift a bound above its price."""
Price = Literal["least_memory", "least_time"]
FASTER = tuple(n for n in axes.TRANSPORT_POLICIES if axes.BY_NAME[n].least_time == "high")
"""Policies of communication whose larger value is never slower; laws limit each of them."""
OPEN = ("recompute", *(n for n in axes.POLICY if not axes.BY_NAME[n].least_time and n != "cuda_graph"))
"""Policies whose fastest value is unknown; of `recompute`, `none` is the fastest if it is legal."""
SETTLED = tuple(n for n in axes.POLICY if n not in (*FASTER, *OPEN, "cuda_graph"))
"""Policies for which one end of the domain is never slower."""


class Prices(Protocol):
    """The interface of a cost model for the search: bytes and seconds for whole columns."""

    def memory(self, cols: Mapping[str, Column], *, policies: Policies = ()) -> NDArray[np.floating[Any]]: ...

    def held(self, cols: Mapping[str, Column]) -> NDArray[np.floating[Any]]: ...

    def spare(
        self, cols: Mapping[str, Column], case: str = "high", dispatchers: Sequence[int] = (), policies: Policies = ()
    ) -> NDArray[np.floating[Any]]: ...

    def time(self, cols: Mapping[str, Column]) -> NDArray[np.floating[Any]]: ...

    def work(self, cols: Mapping[str, Column]) -> NDArray[np.floating[Any]]: ...

    @property
    def overhead(self) -> float: ...


def extremes(domains: Domains, price: Price, names: Sequence[str], but: str) -> Iterator[dict[str, int]]:
    """Return combinations of policies, one of which is best by a price; each policy has the end that its axis names, or
    every value."""
    chosen = {n: ends(axes.BY_NAME[n], getattr(axes.BY_NAME[n], price), domains[n]) for n in names if n != but}
    return (dict(zip(chosen, values, strict=True)) for values in itertools.product(*chosen.values()))


def ends(axis: axes.Axis, end: str, domain: NDArray[np.int64]) -> list[int]:
    """Return one end of a domain, or every value; the low end of a set is the empty set."""
    if end == "low":
        return [axis.off if axis.kind == "set" else int(domain.min())]
    return [int(domain.max())] if end == "high" else [int(v) for v in domain]


def graph_strength(mask: int) -> tuple[bool, int]:
    graphs = axes.BY_NAME["cuda_graph"]
    full = bool(mask & graphs.encode("full_iteration"))
    return full, mask.bit_count()


def least_seconds(c: Compiled, prices: Prices, meshes: Table, policies: Table) -> NDArray[np.float64]:
    """Return the minimum seconds of each mesh with any of the policies; infinite if the laws allow none."""
    # The largest legal value of each policy of `FASTER` by mesh, and the meshes that have one for each policy
    columns, possible = dict[str, NDArray[np.int64]](), np.ones(meshes.rows, dtype=bool)
    for name in FASTER:
        column = np.full(meshes.rows, -1, dtype=np.int64)
        for value in _values(policies, name):
            column = np.where(may_have(c, meshes, {name: value}), value, column)
        columns[name], possible = np.maximum(column, 0), possible & (column >= 0)
    open_ = {n: _values(policies, n) for n in OPEN}
    if 0 in open_["recompute"]:
        open_["recompute"] = [0]
    table = meshes.with_columns(**columns)
    least = np.full(meshes.rows, np.inf)
    for values in (dict(zip(OPEN, some, strict=True)) for some in itertools.product(*open_.values())):
        # The values of the other policies that are never slower
        (settled,) = extremes(policies.axes, "least_time", SETTLED, but="cuda_graph")
        graphs = max(_values(policies, "cuda_graph"), key=graph_strength)
        time = prices.time(table.assume(**values, **{**settled, "cuda_graph": graphs}))
        bound = {n: v for n, v in values.items() if v or n != "recompute"}  # without recompute no value is slower
        least = np.minimum(least, np.where(may_have(c, meshes, bound), time, np.inf))
    return np.where(possible, least, np.inf)


def _values(policies: Table, name: str) -> list[int]:
    return sorted({*policies.axes[name].tolist()})


def may_have(c: Compiled, meshes: Table, values: Mapping[str, int]) -> Mask:
    """Return a mask of the meshes that may have these values, by the laws that read one of them and no other policy."""
    judged = ((reading(c, name, meshes.axes), meshes.assume(**{name: value})) for name, value in values.items())
    return np.logical_and.reduce([obeyed(laws, table) for laws, table in judged] or [np.ones(meshes.rows, dtype=bool)])


def reading(c: Compiled, name: str, mesh: Iterable[str]) -> list[Law]:
    """Return the laws that read a policy and, besides it, only some axes of the mesh."""
    return [w for w in c.laws if name in w.needs and len(w.needs) > 1 and w.needs <= {*mesh, name}]


FSDP = axes.BY_NAME["sharding"].encode("fsdp")
FULL = axes.BY_NAME["recompute"].encode("full")


def least_memory_policies(c: Compiled, policies: Table) -> list[dict[str, int]]:
    """The policies that can use the least memory: of those of what memory holds, each for which no other is known to
    use less on every mesh that may have it, with the moves that use the least."""
    held = policies.distinct(MEMORY_POLICIES)
    values = {name: different(held.axes[name]).tolist() for name in held.axes if not reading(c, name, MESH)}
    legal = {tuple(some.values()) for some in held.each()}
    # each with its changes of one policy that never use more, legal or not
    cheaper = ((some, {tuple({**some, **v}.values()) for v in _cheaper(some, values)}) for some in held.each())
    least = [some for some, others in cheaper if legal.isdisjoint(others)]
    return [{**low, **some} for some in least for low in least_memory_transport(c.problem.domains)]


def _cheaper(some: Mapping[str, int], values: Mapping[str, list[int]]) -> Iterator[dict[str, int]]:
    """Yield changes of one memory policy to a value in `values` that never use more.

    `full` recompute uses the least, except with FSDP, whose gradients in flight use the memory of the activations that
    a layer's backward frees, and with offloaded modules, which may leave less than one recomputed layer. Offloaded
    modules may need more than they free: two layers of them are on their way to the host or back.
    """
    for name, end in ((n, axes.BY_NAME[n].least_memory) for n in values):
        if end:
            yield from ({name: v} for v in values[name] if v != some[name] and (v > some[name]) == (end == "high"))
    alone = some["sharding"] != FSDP and not some["offload_modules"]
    if alone and some["recompute"] != FULL and FULL in values.get("recompute", ()):
        yield {"recompute": FULL}


def least_memory_transport(domains: Domains) -> list[dict[str, int]]:
    """Return the transport policies that can use the least memory. If graphs cannot be off, any set of graphs can,
    because masks of attention depend on the sequence."""
    graphs = [0] if 0 in domains["cuda_graph"] else domains["cuda_graph"].tolist()
    moves = extremes(domains, "least_memory", TRANSPORT_POLICIES, but="cuda_graph")
    return [{**some, "cuda_graph": graph} for some in moves for graph in graphs]


def by_meshes(c: Compiled, meshes: Table, policies: Policies) -> Iterator[tuple[Mask, Policies]]:
    """Yield the meshes that may have some policies, as a mask, with these policies, by the laws that read one policy
    and the mesh."""
    limited = [
        name for name in (policies[0] if policies else ()) if name in MEMORY_POLICIES and reading(c, name, meshes.axes)
    ]
    key = lambda some: [some[name] for name in limited]  # noqa: E731
    for values, group in itertools.groupby(sorted(policies, key=key), key):
        yield may_have(c, meshes, dict(zip(limited, values, strict=True))), [*group]
