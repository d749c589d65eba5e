"""Report on one recipe: diagnostics at the lines that set a field, how many rules applied, and what is unknown.

A label is the assignment or the keyword, and its callers, from the trace of the real build or from reading the source.
A call over several lines is narrowed to the keyword that names the field.
"""

from __future__ import annotations

import ast
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

from attrs import define, evolve, field, frozen

from moedsl.bridge.lint.facts import Place, Recipe
from moedsl.bridge.lint.rules import Finding, Verdict
from moedsl.bridge.verify.cases import Refusal
from moedsl.emit.fields import BACK
from moedsl.facts import facts
from moedsl.facts.fields import meant, unknown_word
from moedsl.lang.printer import print_expr
from moedsl.rules.rule import Rule
from moedsl.support import foreign
from moedsl.support.diagnostics import Diagnostic, Label, error, note, suggest, to_json, warning
from moedsl.support.source import Source, Span

_PACKAGES = "site-packages" + os.sep


@define
class Lines:
    """Reads the sources that labels point into, each once; an unreadable file has no text and its labels no line."""

    sources: dict[str, Source] = field(factory=dict)
    _trees: dict[str, ast.Module | None] = field(factory=dict)

    def of(self, r: Recipe, names: tuple[str, ...]) -> tuple[Label, ...]:
        """Label where each of the fields was set, each line once; else where the recipe is defined.

        The recipe's own file comes first, and a line that names its field before one that only builds a section. The
        callers of the first line follow it.
        """
        known = [(name, places) for name in names if (places := self._places(r, name))]
        told = [x for x in known if self._tells(*x)] or known
        told.sort(key=lambda x: os.path.realpath(x[1][0][0]) != os.path.realpath(r.file))
        labels: dict[Place, Label] = {}
        for name, places in told:
            for i, place in enumerate(places if not labels else places[:1]):
                labels.setdefault(place, self.label(place, name, f"{name} is set here" if not i else "called here"))
        return tuple(labels.values()) or self.definition(r)

    def of_base(self, r: Recipe, names: tuple[str, ...]) -> tuple[Label, ...]:
        """Where the recipe that this one starts from set the fields, if no line of the user's set one; else nothing."""
        first = {places[0]: name for name in names if (places := self._places(r, name))}
        own = [file for file, _ in first if _PACKAGES not in file or os.path.realpath(file) == os.path.realpath(r.file)]
        return () if own else tuple(self.label(at, name, f"{name} is set here") for at, name in first.items())

    def _places(self, r: Recipe, name: str) -> tuple[Place, ...]:
        """Label where a field was set; for an environment variable, where its name is, the recipe's own file first."""
        section = name.partition(".")[0]
        if section != "env":
            parts = name.split(".")
            return next((p for n in range(len(parts), 0, -1) if (p := r.places.get(".".join(parts[:n])))), ())
        variable = name.partition(".")[2]
        files = dict.fromkeys([r.file, *(f for f, _ in r.places.get("env_vars", ()))])
        for file in files:
            if lines := self._constants(file, variable):
                return ((file, lines[-1]),)
        return r.places.get("env_vars", ())

    def _constants(self, file: str, text: str) -> list[int]:
        """The lines of a file with a string constant."""
        tree = self._tree(file)
        return (
            sorted(n.lineno for n in ast.walk(tree) if isinstance(n, ast.Constant) and n.value == text) if tree else []
        )

    def _tells(self, name: str, places: tuple[Place, ...]) -> bool:
        """Whether the line, or the keyword in it, names the field."""
        file, line = places[0]
        leaf, source = name.rpartition(".")[2], self.sources.get(self._read(file))
        at = self._keyword(file, line, leaf) or line
        return source is not None and leaf in source.line(at)

    def definition(self, r: Recipe) -> tuple[Label, ...]:
        """Label the function's `def`; none if its file is unknown."""
        return (self.label((r.file, r.line), r.function, "the recipe"),) if r.file else ()

    def label(self, place: Place, name: str, text: str) -> Label:
        """Label the part of a line that names `name`, or the whole line."""
        file, line = place
        shown = self._read(file)
        source = self.sources.get(shown)
        if source is None:
            return Label(Span(shown, 0, 0), text)
        line = self._keyword(file, line, name.rpartition(".")[2]) or line
        start = _offset(source.text, line)
        words = source.line(line)
        indent = len(words) - len(words.lstrip())
        code = words.split("  #")[0].rstrip()
        return Label(Span(shown, start + indent, start + max(len(code), indent + 1)), text)

    def _read(self, file: str) -> str:
        """Read a file once; returns its name in diagnostics."""
        shown = file.split(_PACKAGES)[-1] if _PACKAGES in file else _relative(file)
        if shown not in self.sources and Path(file).is_file():
            self.sources[shown] = Source(shown, Path(file).read_text(encoding="utf-8", errors="replace"))
        return shown

    def _keyword(self, file: str, line: int, name: str) -> int | None:
        """The line of the keyword or dictionary key `name` in the statement at `line`."""
        source = self.sources.get(self._read(file))
        for first, last, named in _calls(source.text) if source else ():
            if first <= line <= last:
                for at, word in named:
                    if word == name:
                        return at
        return None

    def _tree(self, file: str) -> ast.Module | None:
        if file not in self._trees:
            source = self.sources.get(self._read(file))
            self._trees[file] = foreign.parse_python(source.text) if source else None
        return self._trees[file]


@lru_cache(maxsize=64)
def _calls(text: str) -> list[tuple[int, int, list[tuple[int, str | None]]]]:
    """Return the first and last line of each call and dictionary, and the lines of its names. Many recipes start from
    the same file."""
    tree = foreign.parse_python(text)
    nodes = [n for n in ast.walk(tree) if isinstance(n, ast.Call | ast.Dict)] if tree else []
    return [(n.lineno, n.end_lineno or n.lineno, _named(n)) for n in nodes]


def _named(node: ast.Call | ast.Dict) -> list[tuple[int, str | None]]:
    if isinstance(node, ast.Call):
        return [(k.lineno if hasattr(k, "lineno") else k.value.lineno, k.arg) for k in node.keywords]
    return [(k.lineno, k.value) for k in node.keys if isinstance(k, ast.Constant) and isinstance(k.value, str)]


def _relative(file: str) -> str:
    """Write a path relative to the working directory if it is below it."""
    relative = os.path.relpath(file)
    return file if relative.startswith("..") else relative


def _offset(text: str, line: int) -> int:
    """The offset of a line, counted from 1."""
    at = 0
    for _ in range(line - 1):
        at = text.find("\n", at) + 1
    return at


SHOWN = 3
"""Recipes that are named where several inherit the same advice."""
_SEVERITY = {"error": error, "warning": warning, "note": note}
_LAYOUT = ("layout_stages", "layout_layers", "layout_mtp")
_BEHIND: Mapping[str, tuple[str, ...]] = {
    "graphs": ("model.cuda_graph_impl",),
    "expandable_segments": ("env_vars",),
    "asked_dispatcher": ("model.moe_token_dispatcher_type",),
    **{fact: (name,) for fact, name in facts.FIELDS.items()},
    **dict.fromkeys(_LAYOUT, ("model.pipeline_model_parallel_layout",)),
}
"""Name of a fact -> its field."""


@frozen
class Lint:
    """The findings on one recipe."""

    file: str
    diagnostics: tuple[Diagnostic, ...]
    judged: int = 0
    """Rules that applied and had every value."""
    unjudged: int = 0
    """Rules that need an unknown value."""
    unread: tuple[str, ...] = ()
    """What is unknown, in words."""
    through_bridge: bool = True
    sources: Mapping[str, Source] = field(factory=dict)
    inherited: tuple[Diagnostic, ...] = ()
    """Advice on values that only the base recipe sets, and no line of the user's."""

    @property
    def failed(self) -> bool:
        return any(d.is_error for d in self.diagnostics)

    def to_json(self) -> dict[str, Any]:
        return {
            "file": self.file,
            "ok": not self.failed,
            "through_bridge": self.through_bridge,
            "rules_judged": self.judged,
            "rules_not_judged": self.unjudged,
            "not_known": list(self.unread),
            "diagnostics": [to_json(d, self.sources) for d in self.diagnostics],
            "inherited": [to_json(d, self.sources) for d in self.inherited],
        }


def report(r: Recipe, verdict: Verdict, refusal: Refusal | None, sources: Mapping[str, Source]) -> Lint:
    """The findings on a recipe: errors first, then refusals of Bridge, then advice."""
    lines = Lines()
    own: list[Diagnostic] = []
    inherited: list[Diagnostic] = []
    for f in (*(_finding(f) for f in verdict.findings), *_unknown(r), *_words(r)):
        base = lines.of_base(r, f.names) if f.severity != "error" else ()
        make = _SEVERITY[f.severity]
        labels, whose = (base, "the base recipe") if base else (lines.of(r, f.names), r.function)
        (inherited if base else own).append(make(f.id, f"{whose} {f.text}", *labels, **f.more))
    own += _refused(r, refusal, lines)
    for found in (own, inherited):
        found.sort(key=lambda d: ("error", "warning", "note").index(d.severity))
    return Lint(
        r.target, tuple(own), len(verdict.judged), len(verdict.unjudged), r.unread, r.whole,
        {**sources, **lines.sources}, tuple(inherited),
    )  # fmt: skip


@frozen
class _Found:
    """A finding before it has a place. `text` says what the recipe does."""

    id: str
    severity: str
    names: tuple[str, ...]
    text: str
    more: Mapping[str, Any] = field(factory=dict)


def _finding(f: Finding) -> _Found:
    rule = f.rule
    names = tuple(field for name in f.names for field in fields_of(name))
    verb = "does not follow" if rule.kind == "prefer" else "breaks"
    more = {"because": rule.because, "cites": rule.cites, "values": dict(f.values)}
    return _Found(rule.id, severity(rule), names, f"{verb} `{print_expr(rule.expr)}`", more)


def merged(found: Sequence[Lint]) -> list[Diagnostic]:
    """Merge what several recipes inherit: each finding once, with its recipes."""
    by: dict[tuple[str, tuple[Label, ...]], tuple[Diagnostic, list[str]]] = {}
    for x in found:
        for d in x.inherited:
            by.setdefault((d.id, d.labels), (d, []))[1].append(x.file)
    return [evolve(d, message=f"{d.message} ({_several(files)})") for d, files in by.values()]


def _several(files: Sequence[str]) -> str:
    return ", ".join(files) if len(files) <= SHOWN else f"{len(files)} recipes"


def severity(rule: Rule) -> str:
    """Make a diagnostic of a finding. A broken law is an error. Advice on a recipe is a warning, or a note if its worth
    is 0; advice on a run is a note, or a warning if it is grave."""
    if rule.kind == "require":
        return "error"
    return "warning" if rule.is_grave or (".recipe_" in rule.id and rule.worth > 0) else "note"


def fields_of(name: str) -> tuple[str, ...]:
    """List the dotted fields of a name of an expression."""
    if "." in name:
        return (name,)
    return _BEHIND.get(name) or (BACK[name].shown if name in BACK else ())


def _cite(where: str) -> str:
    """Write a place in the wheel as rules cite it."""
    kinds = {"megatron/bridge/": "bridge ", "megatron/core/": "core ", "transformer_engine/": "te "}
    prefix = next((p for p in kinds if where.startswith(p)), "")
    return kinds.get(prefix, "") + where.removeprefix(prefix)


def _unknown(r: Recipe) -> Iterator[_Found]:
    """Report attributes that the recipe sets and nothing reads."""
    for name, value in r.unknown.items():
        text = f"sets `{name}` to {value}, which does nothing: it is not a field of Bridge"
        yield _Found("lint.unknown_field", "warning", (name,), text, {"help": meant(name)})


def _words(r: Recipe) -> Iterator[_Found]:
    """Report values that the annotation of their field does not list."""
    for name, value in r.fields.items():
        if takes := unknown_word(name, value):
            near = suggest(str(value).lower(), re.findall(r'"([^"]+)"', takes))
            text = f"sets `{name}` to {value}, but Bridge knows only {takes}"
            yield _Found("lint.unknown_word", "warning", (name,), text, {"help": near})


def _refused(r: Recipe, refusal: Refusal | None, lines: Lines) -> Iterator[Diagnostic]:
    """Report an exception of Bridge with its message."""
    if refusal is not None:
        step = "while it was built" if refusal.question == "recipe" else "in runtime_config_update"
        theirs = refusal.where.startswith(("megatron/", "transformer_engine/"))
        verb = f"Megatron Bridge refuses {r.function}" if theirs else f"{r.function} fails"
        yield error(
            "lint.refused",
            *lines.definition(r),
            verb=verb,
            step=step,
            error=refusal.error,
            split=" ".join(refusal.message.split()),
            cites=(_cite(refusal.where),),
        )
