"""Find the policies with which a mesh can use the least or the most memory, on which every bound of memory is based."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping

import numpy as np
from numpy.typing import NDArray

from moedsl.facts import axes
from moedsl.facts.axes import HELD, MESH, MOVED
from moedsl.solver.bounds import Policies, extremes, may_have, reading
from moedsl.solver.laws import Compiled
from moedsl.solver.table import Mask, Table, different

Domains = Mapping[str, NDArray[np.int64]]

FSDP = axes.BY_NAME["sharding"].encode("fsdp")
FULL = axes.BY_NAME["recompute"].encode("full")


def frugal(c: Compiled, policies: Table) -> list[dict[str, int]]:
    """The policies that can use the least memory: of those of what memory holds, each for which no other is known to
    use less on every mesh that may have it, with the moves that use the least."""
    held, cheaper = policies.distinct(HELD), _with_cheaper(c, policies)
    legal = {tuple(some.values()) for some in held.each()}
    least = [some for some, others in cheaper if legal.isdisjoint(others)]
    return [{**low, **some} for some in least for low in frugal_moves(c.problem.domains)]


def wasteful(c: Compiled, policies: Table) -> list[dict[str, int]]:
    """The policies that can use the most memory: of those of what memory holds, each that is not known to use less than
    another one on every mesh that may have that, with the moves that can use the most."""
    cheaper = _with_cheaper(c, policies)
    less = {other for _, others in cheaper for other in others}
    most = [some for some, _ in cheaper if tuple(some.values()) not in less]
    return [{**high, **some} for some in most for high in wasteful_moves(c.problem.domains)]


def _with_cheaper(c: Compiled, policies: Table) -> list[tuple[dict[str, int], set[tuple[int, ...]]]]:
    """Each combination of policies of what memory holds, with changes of one that never use more, legal or not."""
    held = policies.distinct(HELD)
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


def frugal_moves(domains: Domains) -> list[dict[str, int]]:
    """Other policies that can use the least memory. Without `none`, any set of graphs can: masks of attention depend on
    the sequence."""
    graphs = [0] if 0 in domains["cuda_graph"] else domains["cuda_graph"].tolist()
    moves = extremes(domains, "least_memory", MOVED, but="cuda_graph")
    return [{**some, "cuda_graph": graph} for some in moves for graph in graphs]


def wasteful_moves(domains: Domains) -> list[dict[str, int]]:
    """Other policies that can use the most memory: any dispatcher, since an all-to-all needs more outside torch."""
    open_ = {n: domains[n].tolist() if n == "dispatcher" else _not_least(n, domains[n].tolist()) for n in MOVED}
    return [dict(zip(open_, values, strict=True)) for values in itertools.product(*open_.values())]


def _not_least(name: str, values: list[int]) -> list[int]:
    """The values but the end that uses the least, if there are others; of graphs that is `none`."""
    least = {"low": min(values), "high": max(values)}.get(axes.BY_NAME[name].least_memory, 0)
    return [v for v in values if v != least] or values


def of_weights(policies: Policies) -> list[dict[str, int]]:
    """The policies of weights, gradients and optimizer state among some, each once."""
    names = [n for n in HELD if n not in ("recompute", "offload_modules")]
    return [*{tuple(some[n] for n in names): {n: some[n] for n in names} for some in policies}.values()]


def by_meshes(c: Compiled, meshes: Table, policies: Policies) -> Iterator[tuple[Mask, Policies]]:
    """Group policies by the meshes that may have them, by the laws that read one policy and the mesh."""
    limited = [name for name in (policies[0] if policies else ()) if name in HELD and reading(c, name, meshes.axes)]
    key = lambda some: [some[name] for name in limited]  # noqa: E731
    for values, group in itertools.groupby(sorted(policies, key=key), key):
        yield may_have(c, meshes, dict(zip(limited, values, strict=True))), [*group]
