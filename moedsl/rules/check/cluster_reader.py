"""Turn a `cluster` declaration into a `Cluster`; check each fact's kind, its executor, and that it holds no secret.

Also define a launch's variables and arguments: their origins, and the values that are refused.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from fractions import Fraction
from typing import Any

from attrs import frozen

from moedsl.lang import ast
from moedsl.rules import blocks, launch_variables
from moedsl.rules.check import cluster_facts
from moedsl.rules.check.cluster_facts import Cluster, Kind
from moedsl.rules.library import Library
from moedsl.rules.rule import Rule
from moedsl.support import secrets
from moedsl.support.diagnostics import Diagnostic, error, suggest
from moedsl.support.source import Span

Entries = tuple[ast.FactEntry, ...]
_NAMED = r"[A-Za-z0-9](?:[A-Za-z0-9_.-]{0,61}[A-Za-z0-9])?"
"""A label's name or value of at most 63 characters, as the API server accepts it."""
_KEY = rf"(?:[a-z0-9](?:[a-z0-9.-]*[a-z0-9])?/)?{_NAMED}"
"""A label's name, after its optional domain."""
_QUANTITY = r"[0-9]+(?:\.[0-9]+)?(?:[mkMGTPE]|[KMGTPE]i)?"
"""A quantity, as the API server accepts it."""
_SHAPES: Mapping[str, tuple[str, str]] = {
    "token": (r"[A-Za-z0-9_][A-Za-z0-9_.,:/@%+=-]*", "letters, digits and _ . , : / @ % + = -"),
    "path": (r"[A-Za-z0-9_./~][A-Za-z0-9_./@%+=~-]*", "a path of letters, digits and _ . / @ % + = ~ -"),
    "host": (r"[A-Za-z0-9_][A-Za-z0-9_.-]*", "letters, digits and _ . -"),
    "time": (r"(?:\d+-)?\d+(?::\d\d){0,2}", 'a time as Slurm writes it: "04:00:00" or "2-00:00:00"'),
    "text": (r"[^\x00-\x1f\x7f]+", "one line of text"),
    "mounts": (
        r"[^~\x00-\x1f\x7f,:][^\x00-\x1f\x7f,:]*:/[^\x00-\x1f\x7f,:]*(?::[a-z,+]+)?",
        '"/on/the/node:/in/the/container"',
    ),
    "label": (
        rf"{_KEY}=(?:{_NAMED})?",
        'labels as Kubernetes writes them: ["nvidia.com/gpu.product=NVIDIA-H100-80GB-HBM3"]',
    ),
    "key": (_KEY, 'the name of a label as Kubernetes writes it: "nvidia.com/gpu.clique"'),
    "tolerations": (
        rf"{_KEY}(?:={_NAMED})?(?::(?:NoSchedule|PreferNoSchedule|NoExecute))?",
        'taints as kubectl writes them: ["nvidia.com/gpu", "pool=moe:NoSchedule"]',
    ),
    "requirements": (
        rf"!?{_KEY}|{_KEY} (?:in|notin) \({_NAMED}(?:, ?{_NAMED})*\)",
        'requirements as kubectl writes them: ["pool in (a, b)", "zone notin (c)", "gpu", "!spot"]',
    ),
    "annotations": (rf"{_KEY}=[^\x00-\x1f\x7f]*", 'annotations: ["example.org/team=moe"]'),
    "interfaces": (rf"[a-z][a-z0-9]*={_NAMED}", 'interfaces with their networks: ["eth2=rdma-0"]'),
    "resources": (rf"{_KEY}={_QUANTITY}", 'resources with their quantities: ["rdma/ib=8", "memory=1500Gi"]'),
    "object": (
        r"[a-z0-9](?:[a-z0-9.-]{0,251}[a-z0-9])?",
        "the name of an object as Kubernetes has it: small letters, digits, - and .",
    ),
    "namespace": (
        r"[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?",
        "the name of a namespace as Kubernetes has it: small letters, digits and -, 63 at most",
    ),
    "quantity": (_QUANTITY, 'a quantity as Kubernetes writes it: "64Gi", or "64G" for 64 GB'),
    "hca": (r"[A-Za-z][A-Za-z0-9_]*(?::[1-9])?", "the name of an adapter, as `ibv_devices` lists it, or `mlx5_0:1`"),
    "options": (r"--?[A-Za-z][^\x00-\x1f\x7f]*", "an option, such as --cpu-bind=none"),
}
"""The pattern of each form of text, and its description for messages."""
_UNQUOTED = ("token", "path", "host")
"""Forms that NeMo-Run inserts into commands without quotes."""


@frozen
class _Reader:
    """Reads one declaration, and collects its errors in `found`."""

    decl: ast.ClusterDecl
    found: list[Diagnostic]

    def cluster(self) -> Cluster | None:
        before, kinds, at = len(self.found), cluster_facts.kinds(), self.decl.name.span
        entries = {e.name.id: e for e in blocks.facts(self.decl.facts, kinds, "a cluster", self.found)}
        values = {n: _READ[kinds[n].form](self, e, kinds[n]) for n, e in entries.items()}
        if "executor" not in entries:
            executors = ", ".join(cluster_facts.EXECUTORS)
            self.found.append(error("check.missing_fact:executor", at, executors=executors))
        elif values["executor"]:
            self.found.extend(_unfitting(values["executor"], entries, values, at))
        return Cluster(self.decl.name.id, **values) if len(self.found) == before else None

    def word(self, e: ast.FactEntry, kind: Kind) -> str | None:
        text = self.plain(e)
        if text is None or not kind.words or text in kind.words:
            return text
        help = suggest(text, list(kind.words)) or (_OTHERS if kind.words == cluster_facts.EXECUTORS else ())
        known = ", ".join(kind.words)
        return self.found.append(error("check.unknown_word:one-of", _at(e), name=e.name.id, words=known, help=help))

    def value(self, e: ast.FactEntry, kind: Kind) -> bool | float | None:
        """Read a switch or a number."""
        of = _VALUES[kind.form]
        value = of.read(e.value)
        if value is None:
            self.found.append(error("check.type:form", _at(e), name=e.name.id, takes=of.takes))
        return value

    def text(self, e: ast.FactEntry, kind: Kind) -> str | None:
        return self.shaped(self.plain(e), kind.form, e.name.id, _at(e))

    def plain(self, e: ast.FactEntry) -> str | None:
        """Read a word, a string or a number as text."""
        if isinstance(e.value, tuple):
            return self.found.append(error("check.type:one-value", e.name.span, name=e.name.id))
        return self.literal(e.value, e.name.id)

    def literal(self, value: ast.Expr, name: str) -> str | None:
        """Return the text of a value; report a value that looks like a secret's."""
        if isinstance(value, ast.Bool):
            return str(value.value).lower()
        if isinstance(value, ast.Number):
            return value.text
        text = blocks.word_or_string(value)
        if text is None:
            return self.found.append(error("check.type:word-or-string", value.span, name=name))
        if what := secrets.value_kind(text):
            shown = _variable(name)
            return self.found.append(error("check.secret:fact", value.span, name=name, what=what, variable=shown))
        return text

    def shaped(self, text: str | None, form: str, name: str, at: Span) -> str | None:
        """Return the text if it has the form; else report it and return None."""
        pattern, shape = _SHAPES[form]
        if text is None or re.fullmatch(pattern, text):
            return text
        help = None if form in _UNQUOTED else ()
        return self.found.append(error("check.cluster:shape", at, name=name, shape=shape, help=help))

    def texts(self, e: ast.FactEntry, kind: Kind) -> tuple[str, ...] | None:
        """Read a list of strings of one form."""
        if not isinstance(e.value, ast.List):
            return self.found.append(error("check.type:list", _at(e), name=e.name.id))
        form, name = {"objects": "object"}.get(kind.form, kind.form), e.name.id
        read = [(self.literal(i, name), i.span) for i in e.value.items]
        return tuple(t for t in [self.shaped(text, form, name, at) for text, at in read] if t is not None)

    def names(self, e: ast.FactEntry, _: Kind) -> tuple[str, ...] | None:
        """Read names of environment variables, without values."""
        if not isinstance(e.value, ast.List) or not all(isinstance(i, ast.Name | ast.String) for i in e.value.items):
            return self.found.append(error("check.type:names", _at(e), name=e.name.id))
        read = [(self.literal(i, e.name.id), i.span) for i in e.value.items]
        return tuple(t for t, at in read if t is not None and self.variable(t, at))

    def variable(self, name: str, at: Span) -> bool:
        """Whether a job's variable may have this name; report it if not."""
        wrong = launch_variables.refusal(name)
        if wrong:
            self.found.append(error("check.variable", at, name=name, wrong=wrong))
        return wrong is None

    def variables(self, e: ast.FactEntry, _: Kind) -> dict[str, str] | None:
        out: dict[str, str] = {}
        for name, value in self.pairs(e, "env { NCCL_DEBUG INFO }"):
            if secrets.is_secret_name(name.id):
                shown = _variable(name.id)
                self.found.append(error("check.secret:fact-name", name.span, name=name.id, variable=shown))
            elif self.variable(name.id, name.span) and (text := self.literal(value, name.id)) is not None:
                out[name.id] = text
                if "\0" in text:
                    wrong = "contains a NUL, which no variable can hold"
                    self.found.append(error("check.variable", value.span, name=name.id, wrong=wrong))
        return out

    def pairs(self, e: ast.FactEntry, example: str) -> list[tuple[ast.Name, ast.Expr]]:
        """Return names with values, written as a block or as bindings."""
        if not isinstance(e.value, tuple):
            self.found.append(error("check.type:pairs", _at(e), name=e.name.id, example=example))
            return []
        inside = {b.name.id: b for b in e.value if isinstance(b, ast.Binding)}
        entries = (v for v in e.value if isinstance(v, ast.FactEntry))
        both = [*inside.values(), *blocks.facts(entries, None, f"`{e.name.id}`", self.found)]
        nested = [v for v in both if isinstance(v.value, tuple)]
        self.found.extend(error("check.type:one-value", v.name.span, name=v.name.id) for v in nested)
        return [(v.name, v.value) for v in both if not isinstance(v.value, tuple)]

    def selector(self, e: ast.FactEntry, kind: Kind) -> dict[str, str]:
        """Return keys with values, written as a list of texts, or as a block if the keys are words."""
        if isinstance(e.value, ast.List):
            read = [(self.literal(i, e.name.id), i.span) for i in e.value.items]
        else:
            pairs = [(n.id, self.literal(v, n.id), v.span) for n, v in self.pairs(e, f'{e.name.id} ["KEY=VALUE"]')]
            read = [(None if text is None else f"{n}={text}", at) for n, text, at in pairs]
        form = {"selector": "label"}.get(kind.form, kind.form)
        shaped = [self.shaped(text, form, e.name.id, at) for text, at in read]
        return dict(text.split("=", 1) for text in shaped if text is not None)

    def resources(self, e: ast.FactEntry, kind: Kind) -> dict[str, str]:
        """Return a pod's resources besides its GPUs; report amounts and names that the API server refuses."""
        out = self.selector(e, kind)
        for name, amount in out.items():
            if re.fullmatch(r"nvidia\.com/(?:gpu|mig-).*|.*/gpu", name):
                self.found.append(error("check.cluster:gpus", _at(e), resource=name))
            elif "/" in name and _amount(amount).denominator > 1:
                self.found.append(error("check.cluster:device", _at(e), resource=f"{name}={amount}", cites=_KUBERNETES))
            elif "/" not in name and not re.fullmatch(r"cpu|memory|ephemeral-storage|hugepages-.+", name):
                self.found.append(error("check.cluster:resource", _at(e), resource=name, cites=_KUBERNETES))
        return out

    def sbatch(self, e: ast.FactEntry, _: Kind) -> dict[str, str]:
        """Return the parameters of sbatch, each with one line of text; report those that something else decides."""
        read = [(n.id, self.literal(v, n.id), v.span) for n, v in self.pairs(e, f"{e.name.id} {{ NAME value }}")]
        shaped = [(n.replace("_", "-"), self.shaped(text, "text", n, at)) for n, text, at in read]
        out = {n: text for n, text in shaped if text is not None}
        self.found.extend(derived_sbatch(n, e.name.span) for n in sorted({*out} & {*DERIVED_SBATCH}))
        return out


def _amount(quantity: str) -> Fraction:
    """Return the number that a quantity stands for: 500m is a half, 1Ki is 1024."""
    number = quantity.rstrip("mkKMGTPEi")
    suffix = quantity.removeprefix(number)
    if suffix == "m":
        return Fraction(number) / 1000
    return Fraction(number) * (1024 if suffix.endswith("i") else 1000) ** "_kmgtpe".find(suffix[:1].lower())


_KUBERNETES = (
    "kubernetes pkg/apis/core/validation/validation.go: validateResourceName, ValidateResourceQuantityValue",
)


def _unfitting(
    executor: str, entries: Mapping[str, ast.FactEntry], values: Mapping[str, Any], cluster: Span
) -> Iterator[Diagnostic]:
    """Report facts that the executor does not read, and missing facts that it needs."""
    for name, e in entries.items():
        of = cluster_facts.kinds()[name].of
        if executor not in of:
            readers = " and ".join(of)
            yield error("check.cluster:executor", e.name.span, fact=name, executors=readers, executor=executor)
    ssh = ("host", "user", "job_dir") if values.get("tunnel") == "ssh" else ()
    if missing := [n for n in (*cluster_facts.NEEDS[executor], *ssh) if n not in entries]:
        yield error("check.missing_fact:facts", cluster, title=f"a {executor} cluster", missing=", ".join(missing))
    if "host" in entries and values.get("tunnel", "local") == "local":
        yield error("check.cluster:host", entries["host"].name.span)
    if "oversubscription" in entries and "nodes_per_rack" not in entries:
        yield error("check.missing_fact:racks", entries["oversubscription"].name.span)
    if executor == "slurm" and "job_dir" in entries and not str(values["job_dir"] or "/").startswith("/"):
        yield error("check.cluster:job-dir", _at(entries["job_dir"]))
    if executor == "kubeflow" and " " in str(values.get("container") or ""):
        yield error("check.cluster:image", _at(entries["container"]))
    if executor == "local":
        for name in sorted(n for n in values.get("env") or {} if launch_variables.is_loader(n)):
            yield error("check.cluster:loads-code", entries["env"].name.span, variable=f"`{name}`")


_OTHERS = "NeMo-Run's other executors are untested and not supported; `launch.py` of --emit launch may name one"


def _variable(name: str) -> str:
    """Return the name of a variable to inherit a secret through, for help in messages."""
    return name if re.fullmatch(r"[A-Z][A-Z0-9_]*", name) else "HF_TOKEN"


_VALUES = {
    "flag": blocks.Kind(lambda e: e.value if isinstance(e, ast.Bool) else blocks.switch(e), "is on or off"),
    "whole": blocks.Kind(lambda e: blocks.whole(e, 1_000_000), "must be a whole number of at least 1"),
    "ratio": blocks.Kind(blocks.ratio, "must be a number above 0"),
    "multiple": blocks.Kind(lambda e: blocks.ratio(e, 1.0), "must be a number of at least 1: 2 for a tree with 2:1"),
    "size": blocks.Kind(blocks.size, "must be a size above 0, such as 2 TB"),
    "rate": blocks.Kind(blocks.rate, "must be a rate above 0, such as 200 GB/s"),
}
"""The forms that are not text."""


def _at(e: ast.FactEntry) -> Span:
    return (e.name if isinstance(e.value, tuple) else e.value).span


_READ: Mapping[str, Callable[[_Reader, ast.FactEntry, Kind], Any]] = {
    "word": _Reader.word,
    **dict.fromkeys(tuple(_VALUES), _Reader.value),
    "names": _Reader.names,
    "variables": _Reader.variables,
    **dict.fromkeys(("selector", "annotations", "interfaces"), _Reader.selector),
    "resources": _Reader.resources,
    "sbatch": _Reader.sbatch,
    **dict.fromkeys(("mounts", "options", "objects", "hca", "tolerations", "requirements"), _Reader.texts),
    **dict.fromkeys(("token", "path", "host", "time", "text", "key", "object", "namespace", "quantity"), _Reader.text),
}


def read(decl: ast.ClusterDecl, library: Library | None = None) -> tuple[Cluster | None, list[Diagnostic]]:
    """Read a declaration; return None with diagnostics if it is wrong. With a library, check its hardware's
    name too."""
    diagnostics: list[Diagnostic] = []
    made = _Reader(decl, diagnostics).cluster()
    if made is not None and library is not None and made.hardware not in ("", *library.hardware):
        at = next(e for e in decl.facts if e.name.id == "hardware")
        help = suggest(made.hardware, [*library.hardware]) or None
        diagnostics.append(error("check.unknown_hardware", at.span, hardware=made.hardware, help=help))
        return None, diagnostics
    h = library.gpu(made.hardware)[0] if made is not None and library is not None and made.hardware else None
    if made is not None and h is not None:
        node, domain = h.gpus_per_node, made.machine(h).nvlink_domain
        if max(node, domain) % min(node, domain):
            wrong = error("check.hardware:gpus", decl.name.span, hardware=decl.name.id, node=node, domain=domain)
            return None, [*diagnostics, wrong]
    return made, diagnostics


@frozen
class Setting:
    """One derived value, with its name and its reason."""

    name: str
    value: Any
    """A number, a text, or true for an option without a value."""
    origin: str
    """rule (of a launch), plan (the recipe sets it too) or cluster (its declaration)."""
    rule: str | None
    because: str | None
    cites: tuple[str, ...] = ()

    @property
    def text(self) -> str:
        """Return the value as a variable or an option writes it."""
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
"""Parameters of sbatch that a fact, a rule or NeMo-Run sets, with what to write instead."""
_OF_RULES = ("exclusive", "mem")
"""The parameters among these that a run's own rule may override."""
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
    """Return the error for a parameter of sbatch that something else sets, with what to write instead."""
    return error("check.cluster:sbatch", at, option=option, help=DERIVED_SBATCH[option])


def value(rule: Rule, text: str) -> Diagnostic | None:
    """Check the value of a derived argument: it must be one line, because the file is read by lines, and not a
    secret."""
    if rule.name in _PODS and not re.fullmatch(_PODS[rule.name][0], text):
        return error("check.cluster:shape", rule.span, name=rule.name, shape=_PODS[rule.name][1], help=())
    if not rule.name.startswith(_KINDS):
        return None
    if what := secrets.value_kind(text):
        return error("check.secret:variable", rule.span, rule=rule.name, what=what)
    if any(c < " " or c == "\x7f" for c in text):
        return error("check.cluster:line", rule.span, rule=rule.name)
    return None


_MOUNT = r"/[^:,]*:/[^:,]*(?::ro)?"
_PODS = {
    "pod.mounts": (rf"{_MOUNT}(?:,{_MOUNT})*", 'mounts, each "/on/the/node:/in/the/container", separated by commas')
}
"""The pattern of the pod settings that other code parses, and its description for messages."""


def of_this_machine(settings: Iterable[Setting]) -> Iterator[Diagnostic]:
    """Refuse variables of a run's own rules that choose which code a local program loads; the shell may set them."""
    for s in settings:
        if launch_variables.is_loader(s.name) and s.rule is not None and not s.rule.startswith("std."):
            yield error("check.cluster:loads-code", variable=f"`{s.name}` of rule {s.rule}")
