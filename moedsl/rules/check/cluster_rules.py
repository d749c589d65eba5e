"""Find the known clusters, choose one, and read launch rules, which derive settings from a plan and a cluster.

Rules `of launch` may use the names of the run (axes, hardware facts, dp, edp), Bridge's fields as the run `set` them,
the cluster's facts as `cluster.FACT` and its variables as `cluster.env.NAME`, and every earlier `derive`. `derive
srun.NAME` sets an argument of srun, `derive ft_launcher.NAME` one of ft_launcher, `derive sbatch.NAME` a parameter of
sbatch, `derive pod.NAME` a setting of pods, and `env NAME` a variable of every rank.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import attrs
from attrs import frozen

from moedsl.facts.axes import FOLLOWING
from moedsl.facts.symbols import AXES, FLAG, HARDWARE, NUMBER, RUN, TEXT, Type
from moedsl.lang import ast, parser, reader
from moedsl.rules import blocks, collect, launch_variables
from moedsl.rules.check import cluster_reader
from moedsl.rules.check.cluster_facts import Cluster, kinds
from moedsl.rules.evaluators import names
from moedsl.rules.library import Library
from moedsl.rules.recipe_scope import field_types
from moedsl.rules.rule import Rule
from moedsl.rules.types import Inference
from moedsl.support.diagnostics import Diagnostic, Label, error, suggest
from moedsl.support.resources import xdg_folder
from moedsl.support.source import of_stdlib

SUBJECT = "launch"
KINDS = ("require", "prefer", "let", "derive", "env")
OF_RUN = ("gpus", "seq", "global_batch", "phase", "task", "routing", "data", "vlm")
OF_PLAN = {a.name: FLAG if a.kind == "flag" else NUMBER for a in FOLLOWING}
TIMES = ("step_time_high", "save_time", "time_limit", "train_steps", "goodput", "failure_time")
"""Seconds of a step at the high end of the estimate, of saving a checkpoint, and of a job's limit (0 if none); the
steps that the run states (0 if none); the share of time that trains; seconds between failures (0 if none)."""
_FORMS = {"flag": FLAG, "whole": NUMBER, "rate": NUMBER}


@frozen
class Book:
    """The launch rules in the order of the files, and the type of each name that they may use."""

    rules: tuple[Rule, ...]
    scope: dict[str, Type]


def read(library: Library) -> tuple[Book, list[Diagnostic]]:
    """Read all rules blocks `of launch` of a library."""
    book, found = library.once(SUBJECT, "rules", lambda: _read(library))
    return book, [*found]


def _read(library: Library) -> tuple[Book, list[Diagnostic]]:
    diagnostics: list[Diagnostic] = []
    of_launch = [(p, b) for p, b in library.rules if b.subject is not None and b.subject.id == SUBJECT]
    read = [collect.read_rule(prefix, block, m, diagnostics) for prefix, block in of_launch for m in block.members]
    # Keep only kinds that a launch has, and each law, advice and let only once
    first: dict[str, Rule] = {}
    rules: list[Rule] = []
    for r in read:
        if r.kind not in KINDS:
            diagnostics.append(error("check.launch_member", r.span, kind=r.kind, kinds=", ".join(KINDS)))
        elif r.kind in collect.UNIQUE and r.id in first:
            diagnostics.append(error("check.twice:rule", r.span, Label(first[r.id].span, "first here"), rule=r.id))
        elif wrong := launch_variables.refused(r) if r.kind == "env" else cluster_reader.literal(r):
            diagnostics.append(wrong)
        else:
            first[r.id] = r
            rules.append(r)
    known = {n: RUN[n] for n in OF_RUN} | HARDWARE | AXES | OF_PLAN
    cluster = {f"cluster.{n}": _FORMS.get(k.form, TEXT) for n, k in kinds().items() if k.form not in _MANY}
    scope = field_types() | known | cluster | dict.fromkeys(TIMES, NUMBER)
    for rule in rules:  # later rules know the name of a let or a derived value
        scope |= {n: TEXT for n in names(rule.expr) if n.startswith(_VARIABLE)}
        inference = Inference(scope, diagnostics, of_recipe=True)
        inference.condition(rule.when)
        if rule.kind in ("require", "prefer"):
            inference.condition(rule.expr)
            continue
        type_ = inference.of(rule.expr)
        if rule.kind in ("let", "derive"):
            scope[rule.name] = type_ if type_ is not None and type_.kind in ("number", "flag", "text") else TEXT
    return Book(tuple(rules), scope), diagnostics


_MANY = (
    "mounts", "options", "objects", "variables", "sbatch", "selector", "names", "tolerations", "requirements",
    "annotations", "resources",
)  # fmt: skip
_VARIABLE = "cluster.env."


def values(cluster: Cluster) -> dict[str, Any]:
    """Return the facts of a cluster, by their names in an expression."""
    facts = attrs.asdict(cluster, recurse=False)
    stated = {f"{_VARIABLE}{n}": text for n, text in cluster.env.items()}
    plain = {n: facts[n] for n, k in kinds().items() if k.form not in _MANY}
    return stated | {f"cluster.{n}": ",".join(v) if isinstance(v, (tuple, Mapping)) else v for n, v in plain.items()}


ORIGINS = ("run file", "user file", "stdlib")
"""Where a cluster may be declared; an earlier origin hides a later one's cluster of the same name."""


@frozen
class Known:
    """A cluster's declaration and its origin."""

    decl: ast.ClusterDecl
    origin: str

    @property
    def is_default(self) -> bool:
        """Whether the declaration has `default on`."""
        stated = (e.value for e in self.decl.facts if e.name.id == "default")
        return any(v.value if isinstance(v, ast.Bool) else blocks.switch(v) is True for v in stated)


def user_file() -> Path:
    """Return the path of the user's file: ``~/.config/moedsl/clusters.moe``, or below XDG_CONFIG_HOME."""
    return xdg_folder("XDG_CONFIG_HOME", ".config") / "moedsl" / "clusters.moe"


def known(library: Library) -> tuple[dict[str, Known], list[Diagnostic]]:
    """Return every cluster by name, the run file's first; add the user's file to the library's sources."""
    known = {n: Known(d, _origin(d)) for n, d in library.clusters.items()}
    of_user, wrong, path = dict[str, Known](), list[Diagnostic](), user_file()
    source, diagnostics = reader.read(str(path)) if path.exists() else (None, ())
    if source is None:
        wrong += (d for d in diagnostics if d.id != "parse.empty")
    else:
        library.sources[source.name] = source
        module, more = parser.parse(source)
        wrong += (*diagnostics, *more)
        for item in module.items if module else ():
            if not isinstance(item, ast.ClusterDecl):
                wrong.append(error("launch.user_file", item.span))
            elif item.name.id in of_user:
                first = Label(of_user[item.name.id].decl.name.span, "first declared here")
                wrong.append(error("check.twice:rule", item.name.span, first, rule=item.name.id))
            else:
                of_user[item.name.id] = Known(item, "user file")
    own = {n: k for n, k in known.items() if k.origin == "run file"}
    return {**own, **{n: k for n, k in {**known, **of_user}.items() if n not in own}}, wrong


def _origin(decl: ast.ClusterDecl) -> str:
    return "stdlib" if of_stdlib(decl.name.span.file) else "run file"


def choose(library: Library, name: str) -> tuple[Cluster | None, list[Diagnostic]]:
    """Return a cluster by name; without a name, the run file's only or default cluster, else the user's file's."""
    all_, diagnostics = known(library)
    if any(d.is_error for d in diagnostics):
        return None, diagnostics
    if name and name not in all_:
        help = suggest(name, [*all_]) or (_listed(all_),)
        return None, [*diagnostics, error("launch.no_cluster:unknown", name=name, help=help)]
    meant = all_[name] if name else _meant(all_)
    if isinstance(meant, Diagnostic):
        return None, [*diagnostics, meant]
    made, more = cluster_reader.read(meant.decl, library)
    return made, [*diagnostics, *more]


def _meant(all_: Mapping[str, Known]) -> Known | Diagnostic:
    for origin in ORIGINS[:2]:
        of = {n: k for n, k in all_.items() if k.origin == origin}
        defaults = {n: k for n, k in of.items() if k.is_default} or of
        if len(defaults) == 1:
            return next(iter(defaults.values()))
        if defaults:
            labels = [Label(k.decl.name.span, "one of them") for k in defaults.values()]
            return error("launch.which_cluster", *labels, origin=origin, defaults=", ".join(defaults))
    return error("launch.no_cluster:undeclared", help=_listed(all_))


def _listed(all_: Mapping[str, Known]) -> str:
    example = "cluster NAME { executor slurm ... }"
    return f"known clusters: {', '.join(all_)}; declare one as `{example}` in the run file or in {user_file()}"


def of_run_file(library: Library) -> Cluster | None:
    """Return the cluster whose facts a plan reads: the run file's only cluster, or the default one."""
    of_file = {n: Known(d, "run file") for n, d in library.clusters.items() if _origin(d) == "run file"}
    meant = _meant(of_file) if of_file else None
    return cluster_reader.read(meant.decl, library)[0] if isinstance(meant, Known) else None


def check(library: Library) -> list[Diagnostic]:
    """Check the clusters and the launch rules of a run file and the files that it uses."""
    own = [d for d in library.clusters.values() if _origin(d) == "run file"]
    wrong = [d for decl in own for d in cluster_reader.read(decl, library)[1]]
    of_launch = any(b.subject is not None and b.subject.id == SUBJECT for _, b in library.own_rules)
    return [*wrong, *read(library)[1]] if of_launch else wrong  # reading the stdlib's rules takes time
