"""Offer completions of a statement.

These are models, hardware, sizes, words, files, axes with their legal values, and the names of rules, fields, facts and
expressions. Each function takes an `Around`, whose `said` has the statement's words before the cursor.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import Any

from moedsl.facts import axes, facts, fields, symbols
from moedsl.facts.families import CHOICES
from moedsl.facts.field_words import KEYWORDS
from moedsl.facts.field_words import options as field_options
from moedsl.facts.fine_tuning import METHODS, TARGETS
from moedsl.facts.operators import FUNCTIONS
from moedsl.facts.releases import PRODUCTS
from moedsl.facts.symbols import BUILTIN
from moedsl.lang import ast
from moedsl.lsp import describe, legal
from moedsl.lsp.place import Around, Offer
from moedsl.rules.check.check import SWEEPABLE
from moedsl.rules.check.options import ADAPTER_OPTIONS, DATA_OPTIONS, SECTIONS, options


def starters(a: Around) -> Iterator[Offer]:
    """Offer bare names: models, hardware, profiles and phases."""
    for p in axes.PHASES:
        yield Offer(f"{p} first", "Keyword", "phase", partial(describe.PHASES.get, p))
    yield from models(a)
    yield from hardware(a)
    yield from (Offer(n, "Module", "profile") for n in a.known.library.profiles)


def models(a: Around) -> Iterator[Offer]:
    """Offer every model, by its name and by its id on Hugging Face."""
    library = a.known.library
    for called, name in (*((n, n) for n in library.models), *((hf, n) for n, hf in library.hubs())):
        yield Offer(called, "Class", "model", partial(describe.model_of, library, name))


def hardware(a: Around) -> Iterator[Offer]:
    """Offer all hardware."""
    for name in a.known.library.hardware:
        doc = partial(describe.hardware_of, a.known.library, name)
        yield Offer(name, "Struct", "hardware", doc, snippet=f"{name} x ${{1:8}}")


def first(offers: Iterable[Offer]) -> Callable[[Around], Iterator[Offer]]:
    """Make a function that offers these items as the first word after a keyword."""
    found = (*offers,)
    return lambda a: iter(found if len(a.said) == 1 else ())


def words(texts: Iterable[str], detail: str) -> Iterable[Offer]:
    """Return offers for words that are values."""
    return (Offer(text, "EnumMember", detail) for text in texts)


def _options(a: Around, names: Iterable[str]) -> Iterator[Offer]:
    """Return offers for the options that are not stated yet."""
    return (Offer(o, "Property", "an option", insert=f"{o}=") for o in names if o not in a.said)


def counts(a: Around) -> Iterator[Offer]:
    """Offer numbers of GPUs that fill whole nodes."""
    name = a.said[-2] if len(a.said) > 1 else ""
    made = a.known.library.gpu(name)[0] if name in a.known.library.hardware else None
    node = made.gpus_per_node if made else 8
    yield from (Offer(str(node * n), "Value", f"{n} nodes of {node}") for n in (1, 2, 4, 8, 16, 32, 64, 128))


def adapter(a: Around) -> Iterator[Offer]:
    """Offer the methods, then the options that are not stated yet, and inside a list the modules."""
    if len(a.said) == 1:
        yield from words(METHODS, "a method")
    elif a.said.count("[") > a.said.count("]"):
        yield from words((t for t in TARGETS if t not in a.said), "a module")
    elif a.said[-1] != "=":
        yield from _options(a, ADAPTER_OPTIONS)


def hub_or_path(hub: str, path: str) -> tuple[Offer, Offer]:
    """Return offers for a name on Hugging Face and for a path, with a description of each."""
    return (
        Offer("hf", "EnumMember", hub, insert='hf ""', snippet='hf "$0"'),
        Offer('"PATH"', "File", path, insert='""', snippet='"$0"'),
    )


def data(a: Around) -> Iterator[Offer]:
    """Offer `mock`, a path or a name, then the options that are not stated yet."""
    if len(a.said) == 1:
        yield Offer("mock", "EnumMember", "random tokens")
        yield from hub_or_path("a data set of Hugging Face", "a path on the cluster")
    elif a.said[1] != "mock" and a.said[-1] not in ("=", "hf"):
        yield from _options(a, DATA_OPTIONS)


def resilience(a: Around) -> Iterator[Offer]:
    """Offer the sections, then the options that are not stated yet."""
    if len(a.said) == 1:
        yield from words(SECTIONS, "a section of Bridge")
    elif a.said[1] in SECTIONS and a.said[-1] != "=":
        yield from _options(a, options(a.said[1]))


def fields_of(a: Around) -> Iterator[Offer]:
    """Offer the words that a keyword of Bridge's fields takes, then the options that are not stated yet."""
    if len(a.said) == 1 and (own := fields.lookup(KEYWORDS[a.said[0]][""][0])):
        yield from words((w for w in fields.choices(own.type) if str(w).isalpha() and w), "a value")
    yield from _options(a, field_options(a.said[0]) if a.said[-1] != "=" else ())


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
    """Offer names that are not pinned yet, after `=` the values of the name, and in a list the values not in it yet."""
    equals = [i for i, text in enumerate(a.said) if text == "="]
    value = a.said[equals[-1] + 1 :] if equals else ()
    inside = value.count("[") > value.count("]")
    if equals and (not value or inside):
        name = a.said[equals[-1] - 1]
        axis = axes.BY_NAME.get(name)
        if axis is None:
            yield from words(("true", "false") if name == "sequence_parallel" else (), name)
        elif inside:
            yield from words((w for w in axis.words if w not in a.said), name)
        else:
            yield from of_axis(a, axis)
        return
    taken = {a.said[i - 1] for i in equals} | {*(a.program.pins if a.program else ())}
    for name in axes.PINNED:
        if name not in taken:
            yield Offer(name, "Property", axis_detail(name), partial(describe.name, name), insert=f"{name}=")


def axis_detail(name: str) -> str:
    """Describe an axis in one line."""
    axis = axes.BY_NAME.get(name)
    return axis.doc if axis else "follows from the layout"


def of_axis(a: Around, axis: axes.Axis) -> Iterator[Offer]:
    """Offer the values of an axis; the legal ones come first if the run is known."""
    gpus = legal.gpus_of(a.program, a.document.plan or a.document.last) if a.program else None
    if a.program is None or gpus is None:
        texts = [legal.written(axis, c) for c in range(len(axis.words) if axis.kind == "enum" else 2)]
        texts = texts if axis.kind in ("enum", "flag") else [*axis.words, "none"] if axis.words else []
        yield from words(texts, axis.name)
    else:
        already: dict[str, int] = {}  # the pins of the same statement as codes, without unreadable values
        for name, equal, value in zip(a.said, a.said[1:], a.said[2:], strict=False):
            other = axes.BY_NAME.get(name) if equal == "=" else None
            if other is not None and other.kind == "int" and value.isdigit():
                already[name] = int(value)
            elif other is not None and other.kind == "enum" and value in other.words:
                already[name] = other.encode(value)
        for v in legal.values(a.program, axis.name, gpus, already):
            detail = "legal with the rest of the run" if v.legal else "no legal layout with the rest of the run"
            yield Offer(v.text, "Value", detail)
    if axis.kind == "set":
        yield Offer("[...]", "Snippet", f"a set of {axis.name} modules", insert="[]", snippet="[$0]")


def swept(a: Around) -> Iterator[Offer]:
    """Offer axes to vary, and after `in` their values."""
    if len(a.said) == 1:
        composites = axes.COMPOSITES if a.said[0] == "isolate" else {}
        for name in (*axes.BY_NAME, *SWEEPABLE, *composites):
            yield Offer(name, "Property", axis_detail(name) if name in axes.BY_NAME else "", insert=f"{name} in ")
    elif "in" in a.said and a.said[1] in axes.COMPOSITES:
        yield from words((w for w in axes.COMPOSITES[a.said[1]] if w not in a.said), a.said[1])
    elif "in" in a.said and a.said[1] in axes.BY_NAME:
        yield from (o for o in of_axis(a, axes.BY_NAME[a.said[1]]) if o.label not in a.said[3:])


def allow(a: Around) -> Iterator[Offer]:
    """Offer every `require` and `prefer` rule, by the name that `allow` uses."""
    if len(a.said) != 1:
        return
    for r in a.rules:
        if r.kind in ("require", "prefer") and not r.wish:
            doc = partial(describe.rule, r, a.known.library.sources)
            yield Offer(r.id.removeprefix("std."), "Reference", r.because or r.kind, doc)


def set_field(a: Around) -> Iterator[Offer]:
    """Offer the fields of Bridge that a run file may set, and after `=` the values of the field's type."""
    if len(a.said) == 1:
        facts_, absent = facts.facts_by_field(), fields.absent()
        for f in fields.fields().values():
            built = absent.get(f.path.rpartition(".")[0], "") is not None
            if built and f.path not in facts_ and (fields.is_writable(f.type) or f.path in CHOICES):
                yield Offer(f.path, "Field", f.type, partial(describe.field, f), insert=f"{f.path} = ")
        return
    known = fields.lookup(a.said[1])
    if known is None or a.said[-1] != "=":
        return
    texts = [*CHOICES.get(known.path, ())] or [word(v) for v in fields.choices(fields.accepted(known))]
    yield from (Offer(text, "Value", known.type) for text in texts)


def word(value: Any) -> str:
    """Format a possible value of a field; a string that is not a name is quoted."""
    if isinstance(value, str):
        return value if value.replace("_", "a").isalnum() and not value[0].isdigit() else f'"{value}"'
    return "none" if value is None else str(value).lower()


def stated(a: Around) -> Iterator[Offer]:
    """Offer the facts of a block, and after a fact the words that it may be."""
    block, library = a.at.block, a.known.library
    fact = a.said[-1] if a.said else ""
    values = describe.words(block, fact, library)
    if fact == "cite":
        yield from cites(a)
    elif values:
        yield from words(values, fact)
    else:
        for f in describe.of(block):
            if f.name not in a.said:
                yield Offer(f.name, "Property", str(f.type), partial(describe.page, block, f.name, library))


def cites(a: Around) -> Iterator[Offer]:
    """Offer the kinds of sources that rules cite."""
    kinds = dict.fromkeys(c.split(" ", 1)[0] for r in a.rules for c in r.cites)
    yield from (Offer(k, "Module", "what is cited", insert=f'{k} ""', snippet=f'{k} "$0"') for k in kinds)


def expression(a: Around) -> Iterator[Offer]:
    """Offer the names that an expression may use, after the possible values of a name that is compared.

    After `worth`, offer percentages.
    """
    if a.said[-1] == "worth":
        yield from (Offer(f"{n}%", "Value", "of the step time") for n in (1, 2, 5))
        return
    yield from words(words_of_other_side(a.said), "compared here")
    names = [(name, axis.doc) for name, axis in axes.BY_NAME.items()]
    names += [(r.name, r.because or "a let") for r in a.rules if r.kind == "let"]
    names += [(name, str(kind)) for name, kind in BUILTIN.items() if name not in axes.BY_NAME]
    for name, detail in names:
        yield Offer(name, "Variable", detail, partial(describe.name, name))
    for name, function in FUNCTIONS.items():
        yield Offer(name, "Function", function.doc, partial(describe.name, name), snippet=f"{name}($0)")


def of_a_name(kind: str) -> Callable[[Around], Iterator[Offer]]:
    """Make a function that completes `default NAME = ...` and similar members.

    It offers the names that are possible there, then the name's values.
    """

    def found(a: Around) -> Iterator[Offer]:
        if len(a.said) == 1:
            known = dict.fromkeys(r.name for r in a.rules if r.kind == kind)
            names = known if kind in ("derive", "env") else {**dict.fromkeys(axes.BY_NAME), **known}
            yield from (Offer(n, "Property", axis_detail(n), insert=f"{n} = ") for n in names)
            return
        if "when" not in a.said and a.said[1] in axes.BY_NAME:
            inside = a.said.count("[") > a.said.count("]")
            axis = axes.BY_NAME[a.said[1]]
            yield from words(axis.words if inside or axis.kind == "enum" else (), axis.name)
        yield from expression(a)

    return found


def rules(a: Around) -> Iterator[Offer]:
    """Offer after `of` what a block of rules may be about, and after `when` an expression."""
    if a.said[-1] == "of":
        yield Offer("recipe", "Keyword", "existing recipes")
        yield Offer("trace", "Keyword", "traces of training steps")
    elif "when" in a.said:
        yield from expression(a)


COMPARISONS = ("==", "!=", "<", "<=", ">", ">=", "in")


def words_of_other_side(said: Sequence[str]) -> tuple[str, ...]:
    """Return the words that the name on the left of a comparison may be; empty for other names."""
    at = next((i for i in range(len(said) - 1, 0, -1) if said[i] in COMPARISONS), None)
    if at is None or any(w in ("and", "or", "=>", "then", "else") for w in said[at:]):
        return ()
    before, value = said[at - 1] if said[at - 1] != "not" else said[at - 2], said[at + 1 :]
    kind = BUILTIN.get(symbols.ALIASES.get(before, before))
    if kind is None or (value and (value[0] != "[" or "]" in value)):  # the value is complete
        return ()
    return ("true", "false") if kind.kind == "flag" else (*kind.words, *(("none",) if kind.kind == "set" else ()))


def units_of_other_side(said: Sequence[str]) -> tuple[str, ...]:
    """Return the units for a number that is compared with bytes."""
    bytes_ = len(said) > 1 and said[-1] in COMPARISONS and said[-2] in symbols.BYTES
    return ("GiB", "GB", "TiB", "TB") if bytes_ else ()
