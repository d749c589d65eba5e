"""`moedsl targets`: list the releases of Megatron Bridge that recipes are written for, or fetch one to verify with."""

from __future__ import annotations

import sys
from argparse import Namespace

from moedsl.bridge.verify import environments
from moedsl.cli import console
from moedsl.facts.releases import RELEASES, Release, default, named
from moedsl.support.diagnostics import error, suggest


def run(a: Namespace) -> int:
    return _add(a) if a.action == "add" else _list(a)


def _list(a: Namespace) -> int:
    rows = [(r, _where(r)) for r in RELEASES]
    if a.json:
        facts = [{"bridge": r.bridge, "core": r.core, "verified_by": w, "default": r is default()} for r, w in rows]
        console.print_json(facts)
        return 0
    for r, where in rows:
        said = where or f"`moedsl targets add {r.minor}` fetches it"
        print(f"{r.bridge:<8}Megatron-Core {r.core:<8}{said}" + (", the default here" if r is default() else ""))
    return 0


def _where(release: Release) -> str | None:
    """Where the release is that `verify` asks; None if it is not here."""
    if environments.is_installed(release):
        return "installed"
    folder = environments.made(release)
    return str(folder) if folder else None


def _add(a: Namespace) -> int:
    known = [r.minor for r in RELEASES]
    ready = list[Release]()
    for version in a.versions:
        release = named(version)
        if release is None:
            text, help = f"no release {version} of Megatron Bridge is known", suggest(version, known)
            return console.refused(a, [error("check.target", text, help=help or (f"one of {', '.join(known)}",))])
        if environments.is_ready(release):
            print(f"Bridge {release.bridge} is here already", file=sys.stderr)
            ready.append(release)
            continue
        print(f"fetching {', '.join(environments.pins(release))}", file=sys.stderr, flush=True)
        try:
            folder = environments.make(release)
        except environments.NotMadeError as problem:
            return console.refused(a, [error("verify.no_target", problem.message, help=problem.help)])
        print(f"Bridge {release.bridge} is in {folder}", file=sys.stderr)
        ready.append(release)
    if a.json:
        console.print_json({"version": 1, "targets": [{"bridge": r.bridge, "verified_by": _where(r)} for r in ready]})
    return 0
