"""Read the rules of a launch: blocks `of launch`, which derive settings from a plan and a cluster.

They may use names of the run (axes, hardware facts, dp, edp), Bridge's fields as the run `set` them, the facts of the
cluster as `cluster.FACT` and the variables that it states as `cluster.env.NAME`, and every earlier `derive`.
`derive srun.NAME` is an argument of srun, `derive ft_launcher.NAME` one of ft_launcher, `derive sbatch.NAME` a
parameter of sbatch, `derive pod.NAME` a setting of pods, `env NAME` a variable of every rank.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import cache
from typing import Any

import attrs
from attrs import frozen

from moedsl.facts.axes import FOLLOWING
from moedsl.facts.symbols import AXES, FLAG, HARDWARE, NUMBER, RUN, TEXT, Type
from moedsl.rules import collect, launch_variables
from moedsl.rules.check.clusters import arguments
from moedsl.rules.check.clusters.facts import Cluster, kinds
from moedsl.rules.library import Library
from moedsl.rules.recipe_scope import RecipeInference, field_types
from moedsl.rules.rule import Rule
from moedsl.rules.vectorizer import names
from moedsl.support.diagnostics import Diagnostic, Label, error

SUBJECT = "launch"
KINDS = ("require", "prefer", "let", "derive", "env")
OF_RUN = ("gpus", "seq", "global_batch", "phase", "task", "routing", "data", "vlm")
OF_PLAN = {a.name: FLAG if a.kind == "flag" else NUMBER for a in FOLLOWING}
TIMES = ("step_time_high", "save_time", "time_limit", "train_steps", "goodput", "failure_time")
"""Seconds of a step at the high end of the estimate, of a save of a checkpoint, and of the limit of a job; the steps
that the run states, 0 if it states none; the share of time that trains; seconds from one failure to the next, 0 if the
plan does not have them."""
_FORMS = {"flag": FLAG, "whole": NUMBER, "rate": NUMBER}


@frozen
class Book:
    """The rules of launches in the order of the files, and the type of each name that they may use."""

    rules: tuple[Rule, ...]
    scope: dict[str, Type]


def read(library: Library) -> tuple[Book, list[Diagnostic]]:
    """Read every block `of launch` of a library."""
    book, found = library.once(SUBJECT, "rules", lambda: _read(library))
    return book, [*found]


def _read(library: Library) -> tuple[Book, list[Diagnostic]]:
    diagnostics: list[Diagnostic] = []
    read = [
        collect.read_rule(prefix, block, m, diagnostics)
        for prefix, block in library.rules
        if block.subject is not None and block.subject.id == SUBJECT
        for m in block.members
    ]
    known = tuple(_members(read, diagnostics))
    scope = dict(_scope())
    for rule in known:
        _check(rule, scope, diagnostics)
    return Book(known, scope), diagnostics


def _members(read: Iterable[Rule], diagnostics: list[Diagnostic]) -> Iterable[Rule]:
    """Filter the rules: only the kinds that a launch has, and each law, advice and let only once."""
    seen: dict[str, Rule] = {}
    for r in read:
        if r.kind not in KINDS:
            text = f"`{r.kind}` is for runs; rules `of launch` cannot have it"
            diagnostics.append(error("check.launch_member", text, r.span, help=f"write one of {', '.join(KINDS)}"))
        elif r.kind in collect.UNIQUE and r.id in seen:
            text = f"`{r.id}` is declared twice"
            diagnostics.append(error("check.twice", text, r.span, Label(seen[r.id].span, "first here")))
        elif wrong := launch_variables.refused(r) if r.kind == "env" else arguments.literal(r):
            diagnostics.append(wrong)
        else:
            seen[r.id] = r
            yield r


def _check(rule: Rule, scope: dict[str, Type], diagnostics: list[Diagnostic]) -> None:
    """Type the parts of a rule; later rules know the name of a let or a derived value."""
    scope |= {n: TEXT for n in names(rule.expr) if n.startswith(_VARIABLE)}
    inference = RecipeInference(scope, diagnostics)
    inference.condition(rule.when)
    if rule.kind in ("require", "prefer"):
        inference.condition(rule.expr)
        return
    type_ = inference.of(rule.expr)
    if rule.kind in ("let", "derive"):
        scope[rule.name] = type_ if type_ is not None and type_.kind in ("number", "flag", "text") else TEXT


@cache
def _scope() -> dict[str, Type]:
    known = {n: RUN[n] for n in OF_RUN} | HARDWARE | AXES | OF_PLAN
    cluster = {f"cluster.{n}": _FORMS.get(k.form, TEXT) for n, k in kinds().items() if k.form not in _MANY}
    return field_types() | known | cluster | dict.fromkeys(TIMES, NUMBER)


_MANY = (
    "mounts", "options", "objects", "variables", "sbatch", "selector", "names", "tolerations", "requirements",
    "annotations", "resources",
)  # fmt: skip
_VARIABLE = "cluster.env."


def values(cluster: Cluster) -> dict[str, Any]:
    """The facts of a cluster, by their names in an expression."""
    facts = attrs.asdict(cluster, recurse=False)
    stated = {f"{_VARIABLE}{n}": text for n, text in cluster.env.items()}
    plain = {n: facts[n] for n, k in kinds().items() if k.form not in _MANY}
    return stated | {f"cluster.{n}": ",".join(v) if isinstance(v, (tuple, Mapping)) else v for n, v in plain.items()}
