"""Collect what a run may name: models, hardware, profiles and rules, from the stdlib and from the user's files."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, MutableMapping, Sequence
from pathlib import Path
from typing import Any

from attrs import evolve, field, frozen

from moedsl.facts.calibration import Constants
from moedsl.facts.facts import Hardware, Model
from moedsl.facts.releases import RENAMED_GPUS
from moedsl.lang import ast, reader
from moedsl.rules import declarations
from moedsl.rules.rule import Collected
from moedsl.support.diagnostics import Diagnostic, Label, error, suggest
from moedsl.support.source import Source, Span, of_stdlib

Parse = Callable[[Source], tuple[ast.Module | None, tuple[Diagnostic, ...]]]
Read = Callable[[str], reader.Read]
Blocks = Sequence[tuple[str, ast.RulesDecl]]


@frozen
class Library:
    """Declarations by name; facts are built when a name is used, so unused declarations cost nothing."""

    models: MutableMapping[str, ast.ModelDecl] = field(factory=dict)
    hardware: MutableMapping[str, ast.HardwareDecl] = field(factory=dict)
    clusters: MutableMapping[str, ast.ClusterDecl] = field(factory=dict)
    calibrations: MutableMapping[str, ast.CalibrationDecl] = field(factory=dict)
    documents: MutableMapping[str, ast.DocumentDecl] = field(factory=dict)
    profiles: MutableMapping[str, ast.ProfileDecl] = field(factory=dict)
    own: list[ast.Item] = field(factory=list)
    """The declarations of the user's files."""
    own_rules: list[tuple[str, ast.RulesDecl]] = field(factory=list)
    """The rules blocks of the added files, each with the prefix of its rules' ids: ``std`` or ``run``."""
    sources: dict[str, Source] = field(factory=dict)
    unused: list[Span] = field(factory=list)
    """The first run statement in each file that the program uses; `use` ignores it, because it reads only
    declarations."""
    diagnostics: list[Diagnostic] = field(factory=list)
    collected: Collected | None = None
    """The stdlib's cached and checked rules; None if there are none. Its blocks are then in `blocks`, not in
    `own_rules`."""
    blocks: Callable[[], Blocks] = tuple
    replaced: dict[str, ast.CalibrationDecl] = field(factory=dict)
    """The stdlib's calibrations that the user's calibrations replace."""
    constants_known: Mapping[str, Constants] = field(factory=dict)
    """The stdlib's cached constants by architecture."""
    made: dict[tuple[str, str], tuple[Any, list[Diagnostic]]] = field(factory=dict, repr=False)
    """The values read from declarations, by kind and name, because several runs use the same."""

    @property
    def rules(self) -> Blocks:
        """Return every rules block, the stdlib's first."""
        return [*self.blocks(), *self.own_rules]

    def add(self, source: Source, module: ast.Module, prefix: str) -> None:
        """Add a module's declarations; a name declared twice is an error with both locations."""
        self.sources[source.name] = source
        tables: dict[type, MutableMapping[str, Any]] = {
            ast.ModelDecl: self.models, ast.HardwareDecl: self.hardware, ast.ClusterDecl: self.clusters,
            ast.CalibrationDecl: self.calibrations, ast.DocumentDecl: self.documents, ast.ProfileDecl: self.profiles,
        }  # fmt: skip
        for item in module.items:
            table: MutableMapping[str, Any] | None = tables.get(type(item))
            if isinstance(item, ast.RulesDecl):
                self.own_rules.append((prefix, item))
            if table is None:
                continue
            self.own.extend([item] if prefix != "std" else ())
            name: ast.Name = item.name  # type: ignore[union-attr, assignment]
            # A profile is looked up after models and hardware
            taken = (table, self.models, self.hardware) if isinstance(item, ast.ProfileDecl) else (table,)
            first = next((t[name.id] for t in taken if name.id in t), None)
            # A user's calibration or cluster replaces the stdlib's; two of a user's are an error
            replaces = prefix != "std" and isinstance(item, ast.CalibrationDecl | ast.ClusterDecl)
            if first is not None and not (replaces and of_stdlib(first.span.file)):
                where = Label(first.name.span, "first declared here")
                self.diagnostics.append(error("check.twice:rule", name.span, where, rule=name.id))
            elif isinstance(first, ast.CalibrationDecl):
                self.replaced[name.id] = first
            if replaces or name.id not in table:
                table[name.id] = item

    def declared(self, model: str, hardware: str) -> str:
        """Return the text of the user's declarations that a run of this model and hardware needs."""
        named: list[ast.Item] = [self.models[model]]
        while hardware in self.hardware and self.hardware[hardware] not in named:
            named.append(self.hardware[hardware])
            hardware = base.id if (base := self.hardware[hardware].base) else ""
        needed = [i.span for i in self.own if isinstance(i, ast.CalibrationDecl) or i in named]
        return "\n".join(self.sources[at.file].text[at.start : at.end] for at in needed)

    def called(self, name: str) -> str:
        """Return the name of the model with a Hugging Face id, which ignores case, or of hardware that a later release
        of Bridge calls so; any other name as it is."""
        if "/" not in name:
            return name if name in self.hardware else RENAMED_GPUS.get(name, name)
        return next((n for n, id in self.hubs() if id.lower() == name.lower()), name)

    def hubs(self) -> Iterator[tuple[str, str]]:
        """Yield the name of each model with its Hugging Face id."""
        for name, decl in self.models.items():
            entries = (e for e in decl.facts if isinstance(e, ast.FactEntry) and e.name.id == "hf")
            yield from ((name, e.value.value) for e in entries if isinstance(e.value, ast.String))

    def model(self, name: str) -> tuple[Model | None, list[Diagnostic]]:
        """Return the facts of a declared model."""
        return self.once("model", name, lambda: declarations.model(self.models[name]))

    def gpu(self, name: str) -> tuple[Hardware | None, list[Diagnostic]]:
        """Return the facts of declared hardware."""
        return self.once("hardware", name, lambda: self._gpu(name))

    def _gpu(self, name: str) -> tuple[Hardware | None, list[Diagnostic]]:
        decl, based_on, found = self.machine(name)
        return (None, found) if found else declarations.hardware(decl, self.constants, based_on)

    def machine(self, name: str) -> tuple[ast.HardwareDecl, str, list[Diagnostic]]:
        """Return declared hardware with the facts that it takes `from` others, and the name of the last of them."""
        decl, seen = self.hardware[name], [name]
        while (base := decl.base) is not None:
            if base.id in seen:
                return decl, "", [error("check.circular:hardware", base.span, hardware=base.id)]
            if base.id not in self.hardware:
                help = suggest(base.id, [*self.hardware]) or None
                return decl, "", [error("check.unknown_hardware", base.span, hardware=base.id, help=help)]
            seen.append(base.id)
            taken = facts_besides(decl.facts, self.hardware[base.id].facts)
            decl = evolve(decl, base=self.hardware[base.id].base, facts=(*taken, *decl.facts))
        return decl, seen[-1] if len(seen) > 1 else "", []

    def gpu_called(self, device: str) -> Hardware | None:
        """Return the GPU whose device name is the longest prefix of `device`, the name that torch.cuda reports.

        Drivers append the board's name; the longest match keeps an H200 from matching H20.
        """
        known = (self.gpu(name)[0] for name in self.hardware)
        named = [f for f in known if f is not None and f.device and device.startswith(f.device)]
        return max(named, key=lambda f: len(f.device), default=None)

    def constants(self, arch: str) -> tuple[Constants | None, list[Diagnostic]]:
        """Return the constants that the estimates use for an architecture."""
        if arch in self.constants_known and not self.replaced.keys() & {declarations.EVERY, arch}:
            return self.constants_known[arch], []
        return self.once("calibration", arch, lambda: declarations.constants(self.calibrations, arch, self.replaced))

    def once(self, kind: str, name: str, make: Callable[[], tuple[Any, list[Diagnostic]]]) -> Any:
        """Return what `make` returns, and keep it for later calls with the same kind and name."""
        if (kind, name) not in self.made:
            self.made[kind, name] = make()
        return self.made[kind, name]


def facts_besides(own: Iterable[ast.FactEntry], base: Iterable[ast.FactEntry]) -> Iterator[ast.FactEntry]:
    """Yield the facts of a machine that another one, with facts of its own, takes; other memory is shown otherwise."""
    stated = {e.name.id for e in own}
    stated |= {"visible", "torch_total"} if "memory" in stated else set()
    return (e for e in base if e.name.id not in stated)


def load(files: Iterable[Path], parse: Parse) -> Library:
    """Load stdlib files; diagnostics call them ``stdlib/...``, wherever they are installed."""
    return of_sources(sources(files), parse)


def sources(files: Iterable[Path]) -> list[Source]:
    """Read stdlib files, named as in diagnostics."""
    from_root = ((path, max(i for i, part in enumerate(path.parts) if part == "stdlib")) for path in files)
    return [Source("/".join(path.parts[i:]), path.read_text(encoding="utf-8")) for path, i in from_root]


def of_sources(sources: Iterable[Source], parse: Parse) -> Library:
    """Load a library from sources that are already read."""
    library = Library()
    for source in sources:
        module, found = parse(source)
        library.diagnostics.extend(found)
        if module is not None:
            library.add(source, module, "std")
    return library


def use(library: Library, source: Source, module: ast.Module, parse: Parse, read: Read = reader.read) -> None:
    """Add the user's module and, once each, the files that it uses; a path is relative to the file that names it."""
    library.add(source, module, "run")
    waiting = _uses(source, module)
    while waiting:
        user, item = waiting.pop()
        name, at = used_name(user, item), item.path.span
        if name in library.sources:
            continue
        # A file of another kind is not opened, because a diagnostic would quote a line of it
        if not name.endswith(".moe") or not os.path.realpath(name).endswith(".moe"):
            library.diagnostics.append(error("read.use", at))
            continue
        used, found = read(name)
        if used is None:  # report it at the `use` that names it
            library.diagnostics.extend(error(d.id, d.message, at, help=d.help) for d in found)
            continue
        library.sources[name] = used
        inner, wrong = parse(used)
        library.diagnostics.extend((*found, *wrong))
        if inner is not None:
            library.add(used, inner, "run")
            library.unused.extend([inner.run.span] if inner.run else ())
            waiting += _uses(used, inner)


def _uses(source: Source, module: ast.Module) -> list[tuple[Source, ast.UseDecl]]:
    """Return the `use` statements of a module, the last first."""
    return [(source, item) for item in reversed(module.items) if isinstance(item, ast.UseDecl)]


def used_name(source: Source, item: ast.UseDecl) -> str:
    """Return the path that a `use` names."""
    return os.path.normpath(os.path.join(os.path.dirname(source.name), item.path.value))
