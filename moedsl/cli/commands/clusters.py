"""`moedsl clusters`: list the clusters for `moedsl run --cluster`."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Mapping

import attrs

from moedsl.cli import console
from moedsl.compiler import load_stdlib
from moedsl.lang import reader
from moedsl.lang.parser import parse
from moedsl.rules import library
from moedsl.rules.check import cluster_reader, cluster_rules
from moedsl.rules.check.cluster_facts import Cluster
from moedsl.rules.check.cluster_rules import Known
from moedsl.rules.library import Library
from moedsl.support.diagnostics import Diagnostic


def run(a: Namespace) -> int:
    known, diagnostics = load_stdlib(), list[Diagnostic]()
    if a.file is not None:
        diagnostics += _use(known, a.file)
    all_, more = cluster_rules.known(known)
    read = {n: cluster_reader.read(k.decl, known) for n, k in all_.items()}
    diagnostics += [*known.diagnostics, *more, *(d for _, wrong in read.values() for d in wrong)]
    made = {n: c for n, (c, _) in read.items() if c is not None}
    if any(d.is_error for d in diagnostics):
        return console.refused(a, diagnostics, known.sources)
    if a.json:
        console.print_json([_json(c, all_[n]) for n, c in made.items()])
    else:
        _table(made, all_)
    console.say(diagnostics, known.sources)
    return 0


def _use(known: Library, file: str) -> list[Diagnostic]:
    """Add the clusters of a run file and of the files that it uses."""
    source, diagnostics = reader.read(file)
    if source is None:
        return [*diagnostics]
    module, more = parse(source)
    if module is not None:
        library.use(known, source, module, parse)
    return [*diagnostics, *more]


def _json(c: Cluster, k: Known) -> dict[str, object]:
    return {**attrs.asdict(c), "declared_in": k.origin, "file": k.decl.name.span.file}


def _table(made: Mapping[str, Cluster], all_: Mapping[str, Known]) -> None:
    width = max((len(n) for n in made), default=0)
    for name, c in made.items():
        mark = " (default)" if c.default else ""
        print(f"{name:{width}}  {c.executor:8}  {_said(c):44}  {all_[name].origin}{mark}")


def _said(c: Cluster) -> str:
    """Describe a cluster's hardware and executor in a few words."""
    if c.executor == "local":
        return "this machine"
    nodes = f"{c.nodes} nodes of {c.hardware}" if c.nodes else c.hardware
    where = c.namespace if c.executor == "kubeflow" else f"{c.user}@{c.host}" if c.tunnel == "ssh" else "from here"
    return ", ".join(w for w in (nodes, c.partition, where) if w)
