"""`moedsl hardware`, `models`, `targets` and `clusters`: list what a run may name, and add models and releases."""

from __future__ import annotations

import sys
from argparse import Namespace
from pathlib import Path

import attrs

from moedsl.cli import console
from moedsl.cli.terminal import Refused
from moedsl.compiler import load_stdlib
from moedsl.facts.facts import Hardware, Model
from moedsl.support.diagnostics import Diagnostic, error, suggest, to_json
from moedsl.support.files import refusals


def hardware(a: Namespace) -> int:
    """List the hardware that a run may name."""
    library = load_stdlib()
    known = [h for h in (library.gpu(n)[0] for n in sorted(library.hardware)) if h is not None]

    def line(h: Hardware) -> str:
        speeds = ", ".join(f"{k} {v:,.0f}" for k, v in h.tflops.items())
        return (
            f"{h.name:<11}{h.memory / 1e9:6.0f} GB  {h.gpus_per_node} a node, NVLink domain {h.nvlink_domain:<3} "
            f"dense TFLOPS: {speeds}"
        )

    console.print_answer(a, [attrs.asdict(h) for h in known], lambda: "\n".join(map(line, known)))
    return 0


def models(a: Namespace) -> int:
    """List the models that a run may name, or add one from its Hugging Face configuration."""
    library = load_stdlib()
    if a.action == "add":
        from moedsl.bridge.importer import config

        made, found = config.add(Path(a.config), a.name, hf=a.hf, ignored=a.ignore, known=library.models)
        refused = refusals(Path(a.output), "models add", force=a.force) if a.output and made is not None else []
        text = console.read(None if refused else made, [*found, *refused])
        console.say(found, {})
        data = {"declaration": text, "diagnostics": [to_json(d, {}) for d in found]}
        return console.put_out(a, text, f'; `use "{Path(a.output or "")}"` makes it known to a run', data)
    from moedsl.cost import parameters

    known = [m for m in (library.model(n)[0] for n in sorted(library.models)) if m is not None]

    def line(m: Model) -> str:
        shared = f" + {m.shared_expert_hidden} shared" if m.shared_expert_hidden else ""
        kind = m.attention.upper() + (", vision" if m.vision else "")
        kind += f", {m.mtp_layers} MTP" if m.mtp_layers else ""
        return (
            f"{m.name:<22}{parameters.unique(m) / 1e9:8.1f}B  {m.layers_said}, "
            f"{m.experts} experts top-{m.topk}{shared}, {kind}  ({m.hf})"
        )

    data = [{**attrs.asdict(m), "parameters": parameters.unique(m)} for m in known]
    console.print_answer(a, data, lambda: "\n".join(map(line, known)))
    return 0


def targets(a: Namespace) -> int:
    """List the releases of Megatron Bridge that recipes are written for, or fetch one to verify recipes with."""
    from moedsl.bridge.verify import environments
    from moedsl.facts.releases import KNOWN, Release, default, named

    def where(release: Release) -> str | None:
        """Return where `verify` finds the release; None if it is not here."""
        if environments.is_installed(release):
            return "installed"
        folder = environments.made(release)
        return str(folder) if folder else None

    if a.action != "add":
        rows = [(r, where(r)) for r in KNOWN]
        if a.json:
            facts = [{"bridge": r.bridge, "core": r.core, "verified_by": w, "default": r is default()} for r, w in rows]
            console.print_json(facts)
            return 0
        for r, place in rows:
            said = place or f"`moedsl targets add {r.minor}` fetches it"
            if r.documents and place is None:
                said = f"no wheel of it; `moedsl targets add {r.minor}` fetches one as soon as an index has it"
            core = f"Megatron-Core {r.core}" if r.core else "by its documents"
            print(f"{r.bridge:<8}{core:<22}{said}" + (", the default here" if r is default() else ""))
        return 0
    ready = list[Release]()
    for version in a.versions:
        release = named(version)
        if release is None:
            text, known = f"no release {version} of Megatron Bridge is known", [*dict.fromkeys(r.minor for r in KNOWN)]
            help = suggest(version, known) or (f"one of {', '.join(known)}",)
            raise Refused([error("check.target", text, help=help)])
        if environments.is_ready(release):
            print(f"Bridge {release.bridge} is here already", file=sys.stderr)
        else:
            print(f"fetching {', '.join(environments.pins(release))}", file=sys.stderr, flush=True)
            try:
                folder = environments.make(release)
            except environments.NotMadeError as problem:
                raise Refused([error("verify.no_target", problem.message, help=problem.help)]) from problem
            print(f"Bridge {release.bridge} is in {folder}", file=sys.stderr)
        ready.append(release)
    if a.json:
        console.print_json({"version": 1, "targets": [{"bridge": r.bridge, "verified_by": where(r)} for r in ready]})
    return 0


def clusters(a: Namespace) -> int:
    """List the clusters for `moedsl run --cluster`, including those of a run file and of the files that it uses."""
    from moedsl.lang.parser import parse
    from moedsl.rules.check import cluster_reader, cluster_rules
    from moedsl.rules.check.cluster_facts import Cluster
    from moedsl.rules.library import use

    library, diagnostics = load_stdlib(), list[Diagnostic]()
    if a.file is not None or a.expression is not None:
        module, more = parse(source := console.source_of(a))
        if module is not None:
            use(library, source, module, parse)
        diagnostics += more
    declared, more = cluster_rules.known(library)
    read = {n: cluster_reader.read(k.decl, library) for n, k in declared.items()}
    diagnostics += [*library.diagnostics, *more, *(d for _, wrong in read.values() for d in wrong)]
    made = {n: c for n, (c, _) in read.items() if c is not None}
    if any(d.is_error for d in diagnostics):
        raise Refused(diagnostics, library.sources)

    def said(c: Cluster) -> str:
        """Describe a cluster's hardware and executor in a few words."""
        if c.executor == "local":
            return "this machine"
        nodes = f"{c.nodes} nodes of {c.hardware}" if c.nodes else c.hardware
        where = c.namespace if c.executor == "kubeflow" else f"{c.user}@{c.host}" if c.tunnel == "ssh" else "from here"
        return ", ".join(w for w in (nodes, c.partition, where) if w)

    if a.json:
        origins = {n: {"declared_in": k.origin, "file": k.decl.name.span.file} for n, k in declared.items()}
        console.print_json([{**attrs.asdict(c), **origins[n]} for n, c in made.items()])
    else:
        width = max((len(n) for n in made), default=0)
        for name, c in made.items():
            mark = " (default)" if c.default else ""
            print(f"{name:{width}}  {c.executor:8}  {said(c):44}  {declared[name].origin}{mark}")
    console.say(diagnostics, library.sources)
    return 0
