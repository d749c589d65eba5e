"""Label the place of a field in the recipe's source: the assignment or the keyword, and its callers.

A line comes from the trace of the real build, or from reading the source. A call over several lines is narrowed to the
keyword that names the field.
"""

from __future__ import annotations

import ast
import os
from functools import lru_cache
from pathlib import Path

from attrs import define, field

from moedsl.bridge.lint.recipe import Place, Recipe
from moedsl.support import foreign
from moedsl.support.diagnostics import Label
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
