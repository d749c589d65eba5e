"""Write what modules and names releases of Bridge and Megatron-Core no longer have to moedsl/facts/bridge_gone.json.

usage: .venv/bin/python tools/bridge_names.py     with the older releases that `moedsl targets add` has fetched
Shape: {release: {"modules": [module], "names": {module: [name]}, "moved": {name: "module:name"}}}, against the release
before it. A name of a package is one that its __init__.py defines or imports. "moved" has the names of modules that
are gone which exactly one other module defines.
"""

from __future__ import annotations

import ast
import importlib.util
import json
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from moedsl.bridge.verify import environments
from moedsl.facts.fields import DATA
from moedsl.facts.releases import RELEASES, Release

PACKAGES = ("megatron/bridge", "megatron/core")


def root(release: Release) -> Path:
    """Return the folder that has the release's packages."""
    spec = importlib.util.find_spec("megatron")
    assert spec is not None and spec.submodule_search_locations is not None
    return environments.made(release) or Path(spec.submodule_search_locations[0]).parent


def modules(release: Release) -> dict[str, tuple[set[str], set[str]]]:
    """Map each module to the names that it defines, and to those that it has, imported ones included."""
    out: dict[str, tuple[set[str], set[str]]] = {}
    base = root(release)
    for file in (f for package in PACKAGES for f in sorted((base / package).rglob("*.py"))):
        with warnings.catch_warnings(action="ignore"):
            tree = ast.parse(file.read_text(encoding="utf-8"))
        own, imported = set[str](), set[str]()
        for node in _top(tree.body):
            if isinstance(node, ast.Import | ast.ImportFrom):
                imported |= {(a.asname or a.name).split(".")[0] for a in node.names}
            elif isinstance(node, ast.FunctionDef | ast.ClassDef):
                own.add(node.name)
            else:
                own |= {n.id for n in ast.walk(node) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)}
        name = ".".join(file.relative_to(base).with_suffix("").parts).removesuffix(".__init__")
        out[name] = own, own | imported
    return out


def _top(body: list[ast.stmt]) -> Iterator[ast.stmt]:
    """Yield the statements of a module, also those below `if` and `try`."""
    for node in body:
        if isinstance(node, ast.If | ast.Try):
            handlers = [s for h in getattr(node, "handlers", ()) for s in h.body]
            yield from _top([*node.body, *node.orelse, *handlers])
        else:
            yield node


def gone(before: dict[str, Any], after: dict[str, Any]) -> dict[str, Any]:
    """Return what a release no longer has."""
    lost = {m: sorted(had[1] - after.get(m, ((), set()))[1]) for m, had in before.items()}
    places: dict[str, list[str]] = {}
    for module, (own, _) in after.items():
        for name in own:
            places.setdefault(name, []).append(module)
    names = {m: found for m, found in lost.items() if found and m in after}
    missing = {n for m, found in lost.items() for n in found if n[0] != "_" and n in before[m][0]}
    return {
        "modules": sorted(m for m in before if m not in after),
        "names": names,
        "moved": {n: f"{places[n][0]}:{n}" for n in sorted(missing) if len(places.get(n, ())) == 1},
    }


def main() -> None:
    every = [modules(r) for r in RELEASES]
    pairs = zip(RELEASES[1:], every[:-1], every[1:], strict=True)
    found = {r.bridge: gone(before, after) for r, before, after in pairs}
    file = DATA / "bridge_gone.json"
    file.write_text(json.dumps(found, indent=1, sort_keys=True) + "\n", encoding="utf-8")
    print(f"{file}: {sum(len(f['modules']) for f in found.values())} modules")


if __name__ == "__main__":
    main()
