"""Find the known clusters and choose one: from the run file, the user's file or the stdlib."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from attrs import frozen

from moedsl.facts.site import Site
from moedsl.lang import ast, parser, reader
from moedsl.rules.check.clusters import cluster as declared
from moedsl.rules.check.clusters import rules
from moedsl.rules.check.clusters.facts import Cluster
from moedsl.rules.library import Library
from moedsl.support.diagnostics import Diagnostic, Label, error, suggest
from moedsl.support.source import of_stdlib

ORIGINS = ("run file", "user file", "stdlib")
"""Where a cluster may be declared; an earlier one hides a later one of the same name."""


@frozen
class Known:
    """One declaration and its origin."""

    decl: ast.ClusterDecl
    origin: str

    @property
    def is_default(self) -> bool:
        """Whether it has `default on`."""
        return any(e.name.id == "default" and _is_on(e.value) for e in self.decl.facts)


def _is_on(value: object) -> bool:
    return (isinstance(value, ast.Bool) and value.value) or (isinstance(value, ast.Name) and value.id == "on")


def user_file() -> Path:
    """The user's file: ``~/.config/moedsl/clusters.moe``, or below XDG_CONFIG_HOME."""
    return Path(os.environ.get("XDG_CONFIG_HOME") or "~/.config").expanduser() / "moedsl" / "clusters.moe"


def known(library: Library) -> tuple[dict[str, Known], list[Diagnostic]]:
    """Find every cluster by name, the run file's first; the user's file is added to the library's sources."""
    out = {n: Known(d, _origin(d)) for n, d in library.clusters.items()}
    of_user, diagnostics = _of_user(library)
    own = {n: k for n, k in out.items() if k.origin == "run file"}
    return {**own, **{n: k for n, k in {**out, **of_user}.items() if n not in own}}, diagnostics


def _origin(decl: ast.ClusterDecl) -> str:
    return "stdlib" if of_stdlib(decl.name.span.file) else "run file"


def _of_user(library: Library) -> tuple[dict[str, Known], list[Diagnostic]]:
    path = user_file()
    if not path.exists():
        return {}, []
    source, diagnostics = reader.read(str(path))
    if source is None:
        return {}, [d for d in diagnostics if d.id != "parse.empty"]
    library.sources[source.name] = source
    module, more = parser.parse(source)
    out: dict[str, Known] = {}
    wrong = [*diagnostics, *more]
    for item in module.items if module else ():
        if not isinstance(item, ast.ClusterDecl):
            wrong.append(
                error("launch.user_file", "the user's file may hold only clusters", item.span, help=_ELSEWHERE)
            )
        elif item.name.id in out:
            first = Label(out[item.name.id].decl.name.span, "first declared here")
            wrong.append(error("check.twice", f"`{item.name.id}` is declared twice", item.name.span, first))
        else:
            out[item.name.id] = Known(item, "user file")
    return out, wrong


_ELSEWHERE = 'put it in another file, and write `use "that.moe"` in the run file'


def choose(library: Library, name: str) -> tuple[Cluster | None, list[Diagnostic]]:
    """Choose a cluster by name; without a name, the only or default one of the run file, else of the user's file."""
    all_, diagnostics = known(library)
    if any(d.is_error for d in diagnostics):
        return None, diagnostics
    meant = _named(all_, name) if name else _meant(all_)
    if isinstance(meant, Diagnostic):
        return None, [*diagnostics, meant]
    made, more = declared.read(meant.decl, library)
    return made, [*diagnostics, *more]


def _named(all_: Mapping[str, Known], name: str) -> Known | Diagnostic:
    if name in all_:
        return all_[name]
    help = suggest(name, [*all_]) or (_listed(all_),)
    return error("launch.no_cluster", f"no cluster is called `{name}`", help=help)


def _meant(all_: Mapping[str, Known]) -> Known | Diagnostic:
    for origin in ORIGINS[:2]:
        of = {n: k for n, k in all_.items() if k.origin == origin}
        defaults = {n: k for n, k in of.items() if k.is_default} or of
        if len(defaults) == 1:
            return next(iter(defaults.values()))
        if defaults:
            labels = [Label(k.decl.name.span, "one of them") for k in defaults.values()]
            text = f"the {origin} has several clusters: {', '.join(defaults)}"
            return error("launch.which_cluster", text, *labels, help="name one, or write `default on` in one of them")
    return error("launch.no_cluster", "neither the run file nor the user's file declares a cluster", help=_listed(all_))


def _listed(all_: Mapping[str, Known]) -> str:
    example = "cluster NAME { executor slurm ... }"
    return f"known clusters: {', '.join(all_)}; declare one as `{example}` in the run file or in {user_file()}"


def site(library: Library) -> Site:
    """What the cluster of a run file states of its storage and its failures: the only one, or the default."""
    of_file = {n: Known(d, "run file") for n, d in library.clusters.items() if _origin(d) == "run file"}
    meant = _meant(of_file) if of_file else None
    made = declared.read(meant.decl)[0] if isinstance(meant, Known) else None
    return made.site if made else Site()


def check(library: Library) -> list[Diagnostic]:
    """Check the clusters and the rules `of launch` of a run file and the files that it uses."""
    own = [d for d in library.clusters.values() if _origin(d) == "run file"]
    wrong = [d for decl in own for d in declared.read(decl, library)[1]]
    of_launch = any(b.subject is not None and b.subject.id == rules.SUBJECT for _, b in library.own_rules)
    return [*wrong, *rules.read(library)[1]] if of_launch else wrong  # reading the stdlib's rules takes time
