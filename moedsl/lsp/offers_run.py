"""Offer the content of a run's statements: models, hardware, sizes, words, files."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from functools import partial

from moedsl.facts import axes, fields, symbols
from moedsl.facts.adapter import METHODS, TARGETS
from moedsl.facts.versions import PRODUCTS
from moedsl.lang import ast
from moedsl.lsp import describe
from moedsl.lsp.document import Analysis
from moedsl.lsp.place import Around, Offer
from moedsl.rules.check.adapter_options import OPTIONS
from moedsl.rules.check.data_options import OPTIONS as DATA_OPTIONS
from moedsl.rules.check.length import UNITS
from moedsl.rules.check.resilience import SECTIONS, options


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
        yield from (Offer(o, "Property", "an option", insert=f"{o}=") for o in OPTIONS if o not in a.said)


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
