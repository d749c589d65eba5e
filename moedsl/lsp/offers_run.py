"""Offer the content of a run's statements: models, hardware, sizes, words, files, and axes with their
legal values.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from functools import partial

from moedsl.facts import axes, fields, symbols
from moedsl.facts.fine_tuning import METHODS, TARGETS
from moedsl.facts.releases import PRODUCTS
from moedsl.lang import ast
from moedsl.lsp import describe, legal
from moedsl.lsp.document import Analysis
from moedsl.lsp.place import Around, Offer
from moedsl.rules.check.check import SWEEPABLE
from moedsl.rules.check.options import ADAPTER_OPTIONS, DATA_OPTIONS, SECTIONS, options
from moedsl.rules.check.statements import UNITS


def starters(a: Around) -> Iterator[Offer]:
    """Offer bare names: models, hardware, profiles and phases."""
    yield from (_phase(p) for p in axes.PHASES)
    yield from models(a)
    yield from hardware(a)
    yield from (Offer(n, "Module", "profile") for n in a.known.library.profiles)


def _phase(word: str) -> Offer:
    return Offer(f"{word} first", "Keyword", "phase", lambda: describe.PHASES.get(word))


def models(a: Around) -> Iterator[Offer]:
    """Offer every model."""
    for name in a.known.library.models:
        yield Offer(name, "Class", "model", partial(model_doc, a.known, name))


def hardware(a: Around) -> Iterator[Offer]:
    """Offer all hardware."""
    for name in a.known.library.hardware:
        yield Offer(name, "Struct", "hardware", partial(hardware_doc, a.known, name), snippet=f"{name} x ${{1:8}}")


def model_doc(known: Analysis, name: str) -> str | None:
    """The facts of a declared model, or None if they are incomplete."""
    made, _ = known.library.model(name)
    return describe.model(made) if made else None


def hardware_doc(known: Analysis, name: str) -> str | None:
    """The facts of declared hardware, or None if they are incomplete."""
    made, _ = known.library.gpu(name)
    return describe.hardware(made) if made else None


def choice(options: Sequence[str], detail: str) -> Callable[[Around], Iterator[Offer]]:
    """Offer the words of a statement."""

    def one(a: Around) -> Iterator[Offer]:
        if len(a.said) == 1:
            yield from (Offer(o, "EnumMember", detail) for o in options)

    return one


def counts(a: Around) -> Iterator[Offer]:
    """Offer whole nodes."""
    name = a.said[-2] if len(a.said) > 1 else ""
    made = a.known.library.gpu(name)[0] if name in a.known.library.hardware else None
    node = made.gpus_per_node if made else 8
    yield from (Offer(str(node * n), "Value", f"{n} nodes of {node}") for n in (1, 2, 4, 8, 16, 32, 64, 128))


def sizes(a: Around) -> Iterator[Offer]:
    """Offer usual sequence lengths."""
    if len(a.said) == 1:
        yield from (Offer(f"{n}k", "Value", f"{n * 1024} tokens") for n in (4, 8, 16, 32, 64, 128, 256))


def vlm(a: Around) -> Iterator[Offer]:
    """Offer the options that are not stated yet."""
    for word in (*symbols.VLM_WORDS, "fsdp", "3d"):
        if word not in a.said:
            yield Offer(word, "EnumMember", "an option of vlm")


def adapter(a: Around) -> Iterator[Offer]:
    """Offer the methods, then the options that are not stated yet, and inside a list the modules."""
    if len(a.said) == 1:
        yield from (Offer(m, "EnumMember", "a method") for m in METHODS)
    elif a.said.count("[") > a.said.count("]"):
        yield from (Offer(t, "EnumMember", "a module") for t in TARGETS if t not in a.said)
    elif a.said[-1] != "=":
        yield from (Offer(o, "Property", "an option", insert=f"{o}=") for o in ADAPTER_OPTIONS if o not in a.said)


def data(a: Around) -> Iterator[Offer]:
    """Offer `mock`, a path or a name, then the options that are not stated yet."""
    if len(a.said) == 1:
        yield Offer("mock", "EnumMember", "random tokens")
        yield Offer("hf", "EnumMember", "a data set of Hugging Face", insert='hf ""', snippet='hf "$0"')
        yield Offer('"PATH"', "File", "a path on the cluster", insert='""', snippet='"$0"')
    elif a.said[1] != "mock" and a.said[-1] not in ("=", "hf"):
        yield from (Offer(o, "Property", "an option", insert=f"{o}=") for o in DATA_OPTIONS if o not in a.said)


def weights(a: Around) -> Iterator[Offer]:
    """Offer a name or a path."""
    if len(a.said) == 1:
        yield Offer("hf", "EnumMember", "a model of Hugging Face", insert='hf ""', snippet='hf "$0"')
        yield Offer('"PATH"', "File", "a checkpoint on the cluster", insert='""', snippet='"$0"')


def resilience(a: Around) -> Iterator[Offer]:
    """Offer the sections, then the options that are not stated yet."""
    if len(a.said) == 1:
        yield from (Offer(s, "EnumMember", "a section of Bridge") for s in SECTIONS)
    elif a.said[1] in SECTIONS and a.said[-1] != "=":
        yield from (Offer(o, "Property", "an option", insert=f"{o}=") for o in options(a.said[1]) if o not in a.said)


def length(a: Around) -> Iterator[Offer]:
    """Offer what `for` counts, after the amount."""
    if len(a.said) == 2:
        yield from (Offer(unit, "EnumMember", "the length of the training") for unit in UNITS)


def target(a: Around) -> Iterator[Offer]:
    """Offer the products, then the supported versions of Bridge."""
    if len(a.said) == 1:
        yield from (Offer(p, "Module", "product") for p in ("bridge", *PRODUCTS))
    elif a.said[-1] == "bridge":
        yield from (Offer(v, "Value", "known here") for v in reversed(fields.versions()))


def run(a: Around) -> Iterator[Offer]:
    """Offer the other runs of the file after `from`."""
    if a.said[-1] == "from":
        own = a.said[1] if len(a.said) > 2 else ""
        items = a.known.module.items if a.known.module else ()
        runs = [i.name.id for i in items if isinstance(i, ast.RunDecl)]
        yield from (Offer(r, "Function", "run") for r in runs if r != own)


def files(a: Around) -> Iterator[Offer]:
    """Offer the .moe files and folders next to the file."""
    folder = os.path.join(os.path.dirname(a.document.source.name), os.path.dirname(a.at.string or ""))
    try:
        entries = sorted(os.scandir(folder), key=lambda e: e.name)
    except OSError:
        return
    for e in entries:
        if e.is_dir() and not e.name.startswith("."):
            yield Offer(f"{e.name}/", "Folder")
        elif e.name.endswith(".moe") and e.path != a.document.source.name:
            yield Offer(e.name, "File")


def pin(a: Around) -> Iterator[Offer]:
    """Offer names that are not pinned yet, and after `=` the values of the name."""
    name, inside = _binding(a.said)
    if name is not None:
        yield from _values(a, name, inside)
        return
    taken = {a.said[i - 1] for i, text in enumerate(a.said) if text == "="}
    taken |= {*(a.program.pins if a.program else ())}
    for axis in axes.PINNED:
        if axis not in taken:
            yield Offer(axis, "Property", axis_detail(axis), partial(describe.name, axis), insert=f"{axis}=")


def axis_detail(name: str) -> str:
    """Describe an axis in a line."""
    axis = axes.BY_NAME.get(name)
    return axis.doc if axis else "follows from the layout"


def _binding(said: Sequence[str]) -> tuple[str | None, bool]:
    """The name whose value is being written, and whether that is inside a list."""
    if "=" not in said:
        return None, False
    at = len(said) - 1 - [*reversed(said)].index("=")
    rest = [*said[at + 1 :]]
    inside = rest.count("[") > rest.count("]")
    return (said[at - 1], inside) if not rest or inside else (None, False)


def _values(a: Around, name: str, inside: bool) -> Iterator[Offer]:
    """Offer the values of an axis; in a list, the words that it does not have yet."""
    axis = axes.BY_NAME.get(name)
    if axis is None:
        yield from (Offer(w, "EnumMember", name) for w in ("true", "false") if name == "sequence_parallel")
    elif inside:
        yield from (Offer(w, "EnumMember", axis.name) for w in axis.words if w not in a.said)
    else:
        yield from of_axis(a, axis)


def of_axis(a: Around, axis: axes.Axis) -> Iterator[Offer]:
    """Offer the values of an axis; the legal ones first if the run is known."""
    gpus = legal.gpus_of(a.program, a.document.plan or a.document.last) if a.program else None
    if a.program is None or gpus is None:
        texts = [legal.written(axis, c) for c in range(len(axis.words) if axis.kind == "enum" else 2)]
        texts = texts if axis.kind in ("enum", "flag") else [*axis.words, "none"] if axis.words else []
        yield from (Offer(t, "EnumMember", axis.name) for t in texts)
    else:
        for v in legal.values(a.program, axis.name, gpus, _already(a.said)):
            detail = "legal with the rest of the run" if v.legal else "no legal layout with the rest of the run"
            yield Offer(v.text, "Value", detail)
    if axis.kind == "set":
        yield Offer("[...]", "Snippet", f"a set of {axis.name} modules", insert="[]", snippet="[$0]")


def _already(said: Sequence[str]) -> dict[str, int]:
    """The pins of the same statement as codes, without unreadable values."""
    out: dict[str, int] = {}
    for name, equal, value in zip(said, said[1:], said[2:], strict=False):
        axis = axes.BY_NAME.get(name)
        if equal == "=" and axis is not None and value.isdigit() and axis.kind == "int":
            out[name] = int(value)
        elif equal == "=" and axis is not None and axis.kind == "enum" and value in axis.words:
            out[name] = axis.encode(value)
    return out


def swept(a: Around) -> Iterator[Offer]:
    """Offer axes to vary, and after `in` their values."""
    if len(a.said) == 1:
        composites = axes.COMPOSITES if a.said[0] == "isolate" else {}
        for name in (*axes.BY_NAME, *SWEEPABLE, *composites):
            yield Offer(name, "Property", axis_detail(name) if name in axes.BY_NAME else "", insert=f"{name} in ")
    elif "in" in a.said and a.said[1] in axes.COMPOSITES:
        yield from (Offer(w, "EnumMember", a.said[1]) for w in axes.COMPOSITES[a.said[1]] if w not in a.said)
    elif "in" in a.said and a.said[1] in axes.BY_NAME:
        yield from (o for o in of_axis(a, axes.BY_NAME[a.said[1]]) if o.label not in a.said[3:])
