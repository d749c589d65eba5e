"""Variables and arguments of a launch: their origins, and the values that are refused."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from attrs import frozen

from moedsl.facts import secrets
from moedsl.lang import ast
from moedsl.rules import launch_variables
from moedsl.rules.rule import Rule
from moedsl.support.diagnostics import Diagnostic, error
from moedsl.support.source import Span


@frozen
class Setting:
    """One derived value with its name and its reason."""

    name: str
    value: Any
    """A number, a text, or true for an option without a value."""
    origin: str
    """rule (of a launch), plan (the recipe sets the same) or cluster (its declaration)."""
    rule: str | None
    because: str | None
    cites: tuple[str, ...] = ()

    @property
    def text(self) -> str:
        """The value as a variable or an option writes it."""
        return str(int(self.value)) if isinstance(self.value, bool) else str(self.value)


_SIZE = "it follows from the plan's GPUs and the cluster's `gpus_per_node`"
_OWN_RULE = 'write `derive sbatch.{} = "..."` with its reason in a block `rules NAME of launch`'
_KEPT = "edit `launch.py` and `job.sh` of `moedsl compile FILE --emit launch`"
DERIVED_SBATCH: Mapping[str, str] = {
    "job-name": "`job_name_prefix` of the cluster is its beginning; the rest is the name of the run",
    **dict.fromkeys(("nodes", "ntasks", "ntasks-per-node"), _SIZE),
    "gpus-per-node": "write `gpus_per_node 4` in the cluster",
    "gres": "write `request gres` in the cluster",
    **{n: f"write `{n}` as a fact of the cluster, outside `sbatch`" for n in ("account", "partition", "qos", "time")},
    **dict.fromkeys(
        ("output", "error"), "`job_dir` of the cluster is the folder of logs, and `moedsl logs ID` prints them"
    ),
    "segment": "`topology off` of the cluster leaves it out",
    **{n: _OWN_RULE.format(n) for n in ("exclusive", "mem")},
    "dependency": "`moedsl run --sequential` runs the jobs of a file one after the other; to wait for any other job, "
    f'{_KEPT}: additional_parameters={{"dependency": "afterok:JOB"}}',
    "array": "`sweep` submits a job for each of its values",
    "wrap": _KEPT,
    "chdir": "name absolute paths in the run file",
    "export": "write `env { NAME value }` or `secrets [NAME]` in the cluster",
    "parsable": "leave it out: the launcher sets it",
}
"""Parameters of sbatch that a fact, a rule or NeMo-Run decides, each with what to write instead."""
_OF_RULES = ("exclusive", "mem")
"""Parameters among these that a run's own rule may override."""
_KINDS = ("srun.", "sbatch.", "ft_launcher.")


def literal(rule: Rule) -> Diagnostic | None:
    """Check the name of a derived argument, and its value if that is a literal."""
    if rule.kind != "derive" or not (rule.name.startswith(_KINDS) or rule.name in _PODS):
        return None
    program, _, name = rule.name.partition(".")
    option = name.replace("_", "-")
    if program == "sbatch" and option in DERIVED_SBATCH and not rule.is_std and option not in _OF_RULES:
        return derived_sbatch(option, rule.span)
    return value(rule, rule.expr.value) if isinstance(rule.expr, ast.String) else None


def derived_sbatch(option: str, at: Span) -> Diagnostic:
    """Refuse a parameter of sbatch that something else decides, and name what to write instead."""
    text = f"`{option}` of sbatch follows from the plan or from the cluster's facts"
    return error("check.cluster", text, at, help=DERIVED_SBATCH[option])


def value(rule: Rule, text: str) -> Diagnostic | None:
    """Check the value of a derived argument: it must be one line, because the file is read by lines, and no secret."""
    if rule.name in _PODS and not _PODS[rule.name][0](text):
        return error("check.cluster", f"`{rule.name}` must be {_PODS[rule.name][1]}", rule.span)
    if not rule.name.startswith(_KINDS):
        return None
    if what := secrets.value_kind(text):
        message = f"the value of `{rule.name}` looks like {what}, which must not be in a file"
        help = "revoke it if it was real, and write `secrets [HF_TOKEN]` in the cluster: the job inherits it"
        return error("check.secret", message, rule.span, help=help)
    if any(c < " " or c == "\x7f" for c in text):
        return error("check.cluster", f"`{rule.name}` must be one line of text without control characters", rule.span)
    return None


def _is_mounts(text: str) -> bool:
    return all(re.fullmatch(r"/[^:,]*:/[^:,]*(:ro)?", mount) for mount in text.split(","))


_PODS = {"pod.mounts": (_is_mounts, '"/on/the/node:/in/the/container", joined by commas')}
"""How the settings of pods are written that are read further."""


def of_this_machine(settings: Iterable[Setting]) -> Iterator[Diagnostic]:
    """Refuse variables of a run's own rules that choose which code a local program loads: set them in the shell."""
    for s in settings:
        if launch_variables.is_loader(s.name) and s.rule is not None and not s.rule.startswith("std."):
            text = f"`{s.name}` of rule {s.rule} would choose what programs on this machine load or write"
            yield error("check.cluster", text, help="set it in the shell that calls `moedsl run`")
