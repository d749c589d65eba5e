"""Report on one recipe: diagnostics at the lines that set a field, how many rules applied, and what is unknown.

A label points at an assignment or keyword argument, and further labels at its callers, as traced during the real build
or read from the source. In a call over several lines it points at the keyword that names the field.
"""

from __future__ import annotations

import ast
import os
import re
from collections.abc import Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

from attrs import define, evolve, field, frozen

from moedsl.bridge.lint.facts import Place, Recipe
from moedsl.bridge.lint.rules import Verdict
from moedsl.bridge.verify.cases import Refusal
from moedsl.emit.fields import BACK
from moedsl.facts import facts
from moedsl.facts.fields import checked, meant, unknown_word
from moedsl.lang.printer import print_expr
from moedsl.rules.rule import Rule
from moedsl.support import foreign
from moedsl.support.diagnostics import Diagnostic, Label, error, note, suggest, to_json, warning
from moedsl.support.source import Source, Span


@frozen
class Lint:
    """The findings on one recipe."""

    file: str
    diagnostics: tuple[Diagnostic, ...]
    judged: int = 0
    """The number of rules that applied and had every value."""
    unjudged: int = 0
    """The number of rules that need an unknown value."""
    unread: tuple[str, ...] = ()
    """Descriptions of what is unknown."""
    through_bridge: bool = True
    sources: Mapping[str, Source] = field(factory=dict)
    inherited: tuple[Diagnostic, ...] = ()
    """Advice on values that the base recipe sets, and no line of the user's file."""

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


_MAKE = {"error": error, "warning": warning, "note": note}


def report(r: Recipe, verdict: Verdict, refusal: Refusal | None, sources: Mapping[str, Source]) -> Lint:
    """Make the report on a recipe: errors first, Bridge's refusal last among them, then advice."""
    lines = Lines()
    own: list[Diagnostic] = []
    inherited: list[Diagnostic] = []

    def add(id: str, severity: str, names: tuple[str, ...], text: str, **more: Any) -> None:
        """Add a finding on some fields; `text` says what the recipe does."""
        base = lines.of_base(r, names) if severity != "error" else ()
        labels, whose = (base, "the base recipe") if base else (lines.of(r, names), r.function)
        (inherited if base else own).append(_MAKE[severity](id, f"{whose} {text}", *labels, **more))

    for f in verdict.findings:
        rule = f.rule
        names = tuple(field for name in f.names for field in fields_of(name))
        text = f"{'does not follow' if rule.kind == 'prefer' else 'breaks'} `{print_expr(rule.expr)}`"
        add(rule.id, severity(rule), names, text, because=rule.because, cites=rule.cites, values=dict(f.values))
    for name, value in r.unknown.items():
        text = f"sets `{name}` to {value}, which does nothing: it is not a field of Bridge"
        add("lint.unknown_field", "warning", (name,), text, help=meant(name))
    for name, value in r.fields.items():
        if takes := unknown_word(name, value):
            near = suggest(str(value).lower(), re.findall(r'"([^"]+)"', takes))
            text, cite = f"sets `{name}` to {value}, but Bridge knows only {takes}", checked().get(name, {}).get("cite")
            if cite:
                add("lint.refused_word", "error", (name,), text, help=near, cites=(cite,))
            else:
                add("lint.unknown_word", "warning", (name,), text, help=near)
    if refusal is not None and refusal.lacks_configuration:
        why, _, _ = refusal.message.partition(". This might be")
        own.append(warning("lint.no_configuration", *lines.definition(r), function=r.function, why=why))
    elif refusal is not None:
        theirs = refusal.where.startswith(("megatron/", "transformer_engine/"))
        verb = f"Megatron Bridge refuses {r.function}" if theirs else f"{r.function} fails"
        step = "while it was built" if refusal.question == "recipe" else "in runtime_config_update"
        folders = {"megatron/bridge/": "bridge ", "megatron/core/": "core ", "transformer_engine/": "te "}
        folder = next((f for f in folders if refusal.where.startswith(f)), "")
        cite = folders.get(folder, "") + refusal.where.removeprefix(folder)
        message = " ".join(refusal.message.split())
        own.append(
            error(
                "lint.refused", *lines.definition(r), verb=verb, step=step, error=refusal.error, split=message,
                cites=(cite,),
            )
        )  # fmt: skip
    for found in (own, inherited):
        found.sort(key=lambda d: [*_MAKE].index(d.severity))
    return Lint(
        r.target, tuple(own), len(verdict.judged), len(verdict.unjudged), r.unread, r.whole,
        {**sources, **lines.sources}, tuple(inherited),
    )  # fmt: skip


def severity(rule: Rule) -> str:
    """Return the severity of a finding.

    A broken law is an error. Advice on a recipe is a warning, or a note if its worth is 0; advice on a run is a note.
    Grave advice is always a warning.
    """
    if rule.kind == "require":
        return "error"
    return "warning" if rule.is_grave or (".recipe_" in rule.id and rule.worth > 0) else "note"


_FIELDS_OF: Mapping[str, tuple[str, ...]] = {
    "graphs": ("model.cuda_graph_impl",),
    "expandable_segments": ("env_vars",),
    "dense_layers": ("model.moe_layer_freq",),
    "balancing_weights": ("model.moe_aux_loss_coeff",),
    "balancings": ("model.moe_router_load_balancing_type",),
    "asked_dispatcher": ("model.moe_token_dispatcher_type",),
    **{fact: (name,) for fact, name in facts.FIELDS.items()},
    **dict.fromkeys(("layout_stages", "layout_layers", "layout_mtp"), ("model.pipeline_model_parallel_layout",)),
}
"""Name in a rule -> the fields of Bridge that set it."""


def fields_of(name: str) -> tuple[str, ...]:
    """Return the dotted fields behind a name in an expression."""
    if "." in name:
        return (name,)
    return _FIELDS_OF.get(name) or (BACK[name].shown if name in BACK else ())


SHOWN = 3
"""The most recipes to name where several inherit the same advice; more are only counted."""


def merged(found: Sequence[Lint]) -> list[Diagnostic]:
    """Merge the advice that several recipes inherit: each finding once, with its recipes."""
    by: dict[tuple[str, tuple[Label, ...]], tuple[Diagnostic, list[str]]] = {}
    for x in found:
        for d in x.inherited:
            by.setdefault((d.id, d.labels), (d, []))[1].append(x.file)
    several = [(d, ", ".join(files) if len(files) <= SHOWN else f"{len(files)} recipes") for d, files in by.values()]
    return [evolve(d, message=f"{d.message} ({files})") for d, files in several]


@define
class Lines:
    """Makes labels, and reads each source that they point into once; labels into an unreadable file have no line."""

    sources: dict[str, Source] = field(factory=dict)

    def of(self, r: Recipe, names: tuple[str, ...]) -> tuple[Label, ...]:
        """Label each line that set one of the fields; if there is none, the recipe's `def`.

        Lines that only build a section are left out if another line names its field. The recipe's own file comes first,
        and the callers of the first line follow it.
        """
        known = [(name, places) for name in names if (places := self._places(r, name))]
        telling = [(n, p) for n, p in known if n.rpartition(".")[2] in self._line(p[0], n)[3]] or known
        telling.sort(key=lambda x: os.path.realpath(x[1][0][0]) != os.path.realpath(r.file))
        labels: dict[Place, Label] = {}
        for name, places in telling:
            for i, place in enumerate(places if not labels else places[:1]):
                labels.setdefault(place, self.label(place, name, f"{name} is set here" if not i else "called here"))
        return tuple(labels.values()) or self.definition(r)

    def of_base(self, r: Recipe, names: tuple[str, ...]) -> tuple[Label, ...]:
        """Label the lines of the base recipe that set the fields; empty if a line of the user's sets one of them."""
        first = {places[0]: name for name in names if (places := self._places(r, name))}
        of_bridge = {file for file, _ in first if foreign.below_packages(file) != file}
        own = [f for f, _ in first if f not in of_bridge or os.path.realpath(f) == os.path.realpath(r.file)]
        return () if own else tuple(self.label(at, name, f"{name} is set here") for at, name in first.items())

    def definition(self, r: Recipe) -> tuple[Label, ...]:
        """Label the function's `def`; none if its file is unknown."""
        return (self.label((r.file, r.line), r.function, "the recipe"),) if r.file else ()

    def label(self, place: Place, name: str, text: str) -> Label:
        """Label the line that names `name` in the statement at `place`, without its comment."""
        shown, source, line, words = self._line(place, name)
        if source is None:
            return Label(Span(shown, 0, 0), text)
        start = sum(len(before) + 1 for before in source.text.split("\n")[: line - 1])
        indent = len(words) - len(words.lstrip())
        code = words.split("  #")[0].rstrip()
        return Label(Span(shown, start + indent, start + max(len(code), indent + 1)), text)

    def _line(self, place: Place, name: str) -> tuple[str, Source | None, int, str]:
        """Find the line that names the last component of `name` in the statement at `place`; return file, source,
        number, text.

        A keyword argument or a dictionary key names it; without one, the line is that of `place`.
        """
        shown, source = self.read(place[0])
        if source is None:
            return shown, None, place[1], ""
        calls, _ = _names(source.text)
        leaf = name.rpartition(".")[2]
        named = (at for first, last, words in calls if first <= place[1] <= last for at, word in words if word == leaf)
        line = next(named, place[1])
        return shown, source, line, source.line(line)

    def _places(self, r: Recipe, name: str) -> tuple[Place, ...]:
        """Return the lines that set a field or its section; for `env.NAME`, the last line with that name, in the
        recipe's own file first."""
        section, _, variable = name.partition(".")
        if section != "env":
            parts = name.split(".")
            return next((p for n in range(len(parts), 0, -1) if (p := r.places.get(".".join(parts[:n])))), ())
        for file in dict.fromkeys([r.file, *(f for f, _ in r.places.get("env_vars", ()))]):
            _, source = self.read(file)
            lines = _names(source.text)[1].get(variable) if source else None
            if lines:
                return ((file, max(lines)),)
        return r.places.get("env_vars", ())

    def read(self, file: str) -> tuple[str, Source | None]:
        """Read a file once; return its name for diagnostics and its source, None if there is no such file.

        The name is relative to the packages, or to the working directory if the file is below it.
        """
        below = os.path.relpath(file)
        packaged = foreign.below_packages(file)
        shown = packaged if packaged != file or below.startswith("..") else below
        if shown not in self.sources and Path(file).is_file():
            self.sources[shown] = Source(shown, Path(file).read_text(encoding="utf-8", errors="replace"))
        return shown, self.sources.get(shown)


@lru_cache(maxsize=64)
def _names(text: str) -> tuple[list[tuple[int, int, list[tuple[int, str | None]]]], dict[str, list[int]]]:
    """Return the first and last line of each call and dictionary of a file with its keywords or keys, and the lines of
    each string.

    Cached, because many recipes start from the same file.
    """
    calls: list[tuple[int, int, list[tuple[int, str | None]]]] = []
    constants: dict[str, list[int]] = {}
    for node in ast.walk(foreign.parse_python(text) or ast.Module([], [])):
        match node:
            case ast.Call():
                calls.append((node.lineno, node.end_lineno or node.lineno, [(k.lineno, k.arg) for k in node.keywords]))
            case ast.Dict():
                keys = [k for k in node.keys if isinstance(k, ast.Constant) and isinstance(k.value, str)]
                calls.append((node.lineno, node.end_lineno or node.lineno, [(k.lineno, str(k.value)) for k in keys]))
            case ast.Constant(value=str() as value):
                constants.setdefault(value, []).append(node.lineno)
            case _:
                pass
    return calls, constants
