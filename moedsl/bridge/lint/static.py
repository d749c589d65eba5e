"""Read a recipe and run nothing of it: what its Python assigns through literals and plain helpers.

A statement is followed in order: assignments to `cfg.SECTION.FIELD`, through other names for `cfg` or a section,
keyword arguments of the constructors of sections, helpers of the same module and of a module in its folder that take or
return the configuration, and branches whose test is known. Anything else is reported as not known.
"""

from __future__ import annotations

from pathlib import Path

from moedsl.bridge.lint.facts import stdlib_facts
from moedsl.bridge.lint.reading import Module, Reader
from moedsl.bridge.lint.recipe import Recipe
from moedsl.bridge.verify.cases import Case
from moedsl.facts.facts import Hardware
from moedsl.rules.library import Library
from moedsl.support.diagnostics import Diagnostic, error


def read(c: Case, hardware: Hardware, library: Library) -> tuple[Recipe | None, tuple[Diagnostic, ...]]:
    """Read the recipe from its source; a diagnostic if the function does not exist."""
    module = Module.of(Path(c.source)) if c.source.endswith(".py") else None
    if module is None or c.function not in module.functions:
        text = f"{c.file}: no function `{c.function}` in a source file, and nothing was imported"
        help = "name it as FILE:function, or let Megatron Bridge import it: installed, and without --read-only"
        return None, (error("lint.source", text, help=help),)
    reader = Reader()
    reader.call(module, module.functions[c.function], {})
    return _recipe(c, module, reader, hardware, library), ()


def _recipe(c: Case, module: Module, reader: Reader, hardware: Hardware, library: Library) -> Recipe:
    return Recipe(
        c.file, c.function, str(module.path), module.functions[c.function].lineno, reader.fields, hardware, c.world,
        classes=reader.classes, places=reader.places, asked=reader.asked, whole=False,
        model=stdlib_facts(reader.hf, library), unknown=reader.strangers(), unread=tuple(reader.unread),
    )  # fmt: skip
