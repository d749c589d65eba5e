"""Enumerate the legal meshes and policies of a compiled problem, and name the fastest and the smallest policies.

The order matters to the search: it visits the meshes that divide memory most first (`most_divided_first`), or those
with the best bounds, so that a good layout is known early and the rest can be skipped.

Every bound of the search is a price with such policies: no policy that a mesh may have is faster than the fastest, or
smaller than the smallest.
"""

from __future__ import annotations

import functools
import itertools
import math
import operator
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Literal, Protocol

import numpy as np
from numpy.typing import NDArray

from moedsl.facts import axes
from moedsl.facts.axes import BY_NAME, MEMORY_POLICIES, MESH, SIZES, TRANSPORT_POLICIES, WEIGHTS
from moedsl.rules.evaluators import Column
from moedsl.solver.laws import Compiled, Law, Mask, Table, allowed, different, obeyed, obeying
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


Domains = Mapping[str, NDArray[np.int64]]
Policies = Sequence[Mapping[str, int]]
"""Values of some policies."""
SLACK = 1e-9
"""Largest share by which rounding lifts a bound above its price."""
Price = Literal["least_memory", "least_time"]
FASTER = tuple(n for n in axes.TRANSPORT_POLICIES if axes.BY_NAME[n].least_time == "high")
"""Policies of communication whose larger value is never slower; laws limit each."""
OPEN = ("recompute", *(n for n in axes.POLICY if not axes.BY_NAME[n].least_time and n != "cuda_graph"))
"""Policies whose fastest value is unknown; of `recompute`, `none` is the fastest if it is legal."""
SETTLED = tuple(n for n in axes.POLICY if n not in (*FASTER, *OPEN, "cuda_graph"))
"""Policies with an end that is never slower."""


class Prices(Protocol):
    """A cost model as the search uses it: bytes and seconds for whole columns."""

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
    """Combinations of policies, one of which is best by a price: the end that the axis names, or every value."""
    chosen = {n: ends(axes.BY_NAME[n], getattr(axes.BY_NAME[n], price), domains[n]) for n in names if n != but}
    return (dict(zip(chosen, values, strict=True)) for values in itertools.product(*chosen.values()))


def ends(axis: axes.Axis, end: str, domain: NDArray[np.int64]) -> list[int]:
    """One end of a domain, or every value; the low end of a set is the empty set."""
    if end == "low":
        return [axis.off if axis.kind == "set" else int(domain.min())]
    return [int(domain.max())] if end == "high" else [int(v) for v in domain]


def slowest(domains: Domains, names: Sequence[str]) -> Iterator[dict[str, int]]:
    """Combinations of policies, one of which no layout is slower than: the other end of each axis with an end that is
    never slower; of sets, nothing captured or a whole iteration, and all that is recomputed or copied at once."""
    chosen = {n: _slow(axes.BY_NAME[n], domains[n].tolist()) for n in names}
    return (dict(zip(chosen, values, strict=True)) for values in itertools.product(*chosen.values()))


def _slow(axis: axes.Axis, domain: list[int]) -> list[int]:
    if axis.name == "cuda_graph":
        return [0, *(mask for mask in domain if graph_strength(mask)[0])]
    if axis.kind == "set":
        whole = axis.encode("full") if "full" in axis.words else 0
        return [functools.reduce(operator.or_, (mask for mask in domain if mask != whole), 0), *({whole} & {*domain})]
    if axis.least_time and len(domain) == 2:
        return [min(domain) if axis.least_time == "high" else max(domain)]
    return domain


def graph_strength(mask: int) -> tuple[bool, int]:
    graphs = axes.BY_NAME["cuda_graph"]
    full = bool(mask & graphs.encode("full_iteration"))
    return full, mask.bit_count()


def least_seconds(c: Compiled, prices: Prices, meshes: Table, policies: Table) -> NDArray[np.float64]:
    """The least seconds of each mesh with any of the policies; infinite if the laws allow none."""
    # The largest legal value of each policy of `FASTER` by mesh, and the meshes that have one of each
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
    """A mask of the meshes that may have these values, by the laws that read one of them and no other policy."""
    judged = ((reading(c, name, meshes.axes), meshes.assume(**{name: value})) for name, value in values.items())
    return np.logical_and.reduce([obeyed(laws, table) for laws, table in judged] or [np.ones(meshes.rows, dtype=bool)])


def reading(c: Compiled, name: str, mesh: Iterable[str]) -> list[Law]:
    """The laws that read a policy, and besides it only some axes of the mesh."""
    return [w for w in c.laws if name in w.needs and len(w.needs) > 1 and w.needs <= {*mesh, name}]


FSDP = axes.BY_NAME["sharding"].encode("fsdp")
FULL = axes.BY_NAME["recompute"].encode("full")


def least_memory_policies(c: Compiled, policies: Table) -> list[dict[str, int]]:
    """The policies that can use the least memory: of those of what memory holds, each for which no other is known to
    use less on every mesh that may have it, with the moves that use the least."""
    held, cheaper = policies.distinct(MEMORY_POLICIES), _with_cheaper(c, policies)
    legal = {tuple(some.values()) for some in held.each()}
    least = [some for some, others in cheaper if legal.isdisjoint(others)]
    return [{**low, **some} for some in least for low in least_memory_transport(c.problem.domains)]


def most_memory_policies(c: Compiled, policies: Table) -> list[dict[str, int]]:
    """The policies that can use the most memory: of those of what memory holds, each that is not known to use less than
    another one on every mesh that may have that, with the moves that can use the most."""
    cheaper = _with_cheaper(c, policies)
    less = {other for _, others in cheaper for other in others}
    most = [some for some, _ in cheaper if tuple(some.values()) not in less]
    return [{**high, **some} for some in most for high in wasteful_moves(c.problem.domains)]


def _with_cheaper(c: Compiled, policies: Table) -> list[tuple[dict[str, int], set[tuple[int, ...]]]]:
    """Each combination of policies of what memory holds, with changes of one that never use more, legal or not."""
    held = policies.distinct(MEMORY_POLICIES)
    values = {name: different(held.axes[name]).tolist() for name in held.axes if not reading(c, name, MESH)}
    return [(some, {tuple({**some, **v}.values()) for v in _cheaper(some, values)}) for some in held.each()]


def _cheaper(some: Mapping[str, int], values: Mapping[str, list[int]]) -> Iterator[dict[str, int]]:
    """Changes of one policy of memory to some values that never use more.

    `full` recompute holds the least, except with FSDP, whose gradients in flight use the memory of the activations that
    a layer's backward frees, and with offloaded modules, which may leave less than one layer that is recomputed.
    Offloaded modules may need more than they free: two layers of them are on their way to the host or back.
    """
    for name, end in ((n, axes.BY_NAME[n].least_memory) for n in values):
        if end:
            yield from ({name: v} for v in values[name] if v != some[name] and (v > some[name]) == (end == "high"))
    alone = some["sharding"] != FSDP and not some["offload_modules"]
    if alone and some["recompute"] != FULL and FULL in values.get("recompute", ()):
        yield {"recompute": FULL}


def least_memory_transport(domains: Domains) -> list[dict[str, int]]:
    """Other policies that can use the least memory. Without `none`, any set of graphs can: masks of attention depend on
    the sequence."""
    graphs = [0] if 0 in domains["cuda_graph"] else domains["cuda_graph"].tolist()
    moves = extremes(domains, "least_memory", TRANSPORT_POLICIES, but="cuda_graph")
    return [{**some, "cuda_graph": graph} for some in moves for graph in graphs]


def wasteful_moves(domains: Domains) -> list[dict[str, int]]:
    """Other policies that can use the most memory: any dispatcher, since an all-to-all needs more outside torch."""
    open_ = {
        n: domains[n].tolist() if n == "dispatcher" else _not_least(n, domains[n].tolist()) for n in TRANSPORT_POLICIES
    }
    return [dict(zip(open_, values, strict=True)) for values in itertools.product(*open_.values())]


def _not_least(name: str, values: list[int]) -> list[int]:
    """The values but the end that uses the least, if there are others; of graphs that is `none`."""
    least = {"low": min(values), "high": max(values)}.get(axes.BY_NAME[name].least_memory, 0)
    return [v for v in values if v != least] or values


def of_weights(policies: Policies) -> list[dict[str, int]]:
    """The policies of weights, gradients and optimizer state among some, each once."""
    names = [n for n in MEMORY_POLICIES if n not in ("recompute", "offload_modules")]
    return [*{tuple(some[n] for n in names): {n: some[n] for n in names} for some in policies}.values()]


def by_meshes(c: Compiled, meshes: Table, policies: Policies) -> Iterator[tuple[Mask, Policies]]:
    """Group policies by the meshes that may have them, by the laws that read one policy and the mesh."""
    limited = [
        name for name in (policies[0] if policies else ()) if name in MEMORY_POLICIES and reading(c, name, meshes.axes)
    ]
    key = lambda some: [some[name] for name in limited]  # noqa: E731
    for values, group in itertools.groupby(sorted(policies, key=key), key):
        yield may_have(c, meshes, dict(zip(limited, values, strict=True))), [*group]
