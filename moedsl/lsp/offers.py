"""What may be written at a place, by the statement that it is in. Names come from the compiler's own tables."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial

from attrs import field, frozen

from moedsl import axes, symbols, words
from moedsl.bridge import fields
from moedsl.check import DERIVED, PRECISIONS, SWEEPABLE
from moedsl.ir import Program, Rule
from moedsl.lsp import describe, expressions, facts, legal
from moedsl.lsp.document import Analysis, Document
from moedsl.lsp.place import Place
from moedsl.lsp.states import keywords
from moedsl.rules import EFFECTS
from moedsl.versions import PRODUCTS

Doc = Callable[[], str | None]


@frozen
class Offer:
    """One thing that may be written. `kind` is a name of LSP's CompletionItemKind."""

    label: str
    kind: str
    detail: str = ""
    doc: Doc | None = field(default=None, repr=False)
    insert: str | None = None
    """What is written instead of the label."""
    snippet: str | None = None
    """The same for a client that knows snippets."""


@frozen
class Around:
    """The place and what is known of its file."""

    document: Document
    known: Analysis
    at: Place

    @property
    def said(self) -> tuple[str, ...]:
        return self.at.texts

    @property
    def program(self) -> Program | None:
        """The run that the place is in, as far as it could be read."""
        name = next((b.name for b in self.at.blocks if b.keyword == "run"), "")
        programs = [p for p in self.known.programs if not name or p.name.split(".")[0] == name]
        return programs[0] if programs else None

    @property
    def rules(self) -> tuple[Rule, ...]:
        """Every rule of a run: the stdlib's and the file's own."""
        if self.program is not None:
            return self.program.rules
        return self.known.library.collected.rules if self.known.library.collected else ()


def offers(a: Around) -> list[Offer]:
    """Everything that may stand at the place, the likeliest first."""
    if a.at.string is not None:
        return list(_files(a)) if a.said == ("use",) else []
    found: list[Offer] = []
    if a.at.accepts & {"NAME", "WORD", "VERSION", "NUMBER", "STRING"}:
        found += _named(a)
    return [*found, *_keywords(a)]


# ---------------------------------------------------------------- keywords


def _keywords(a: Around) -> Iterator[Offer]:
    """The words of the language that the grammar takes here and that mean something here."""
    skip = _meaningless(a)
    for terminal in sorted(a.at.accepts):
        word = terminal.lower()
        if word in keywords() and word not in skip:
            yield _keyword(word)


def _meaningless(a: Around) -> set[str]:
    """`x` follows hardware alone, `first` a phase alone, though the grammar takes them behind any name."""
    if not a.said:
        return {"first", "x"}
    hidden = {"if", "not", "true", "false"} if _is_plain(a) else set[str]()
    hardware = a.said[0] in a.known.library.hardware or a.said[0] == "hardware"
    hidden |= set() if hardware else {"x"}
    return hidden if a.said[0] in axes.PHASES else hidden | {"first"}


def _is_plain(a: Around) -> bool:
    """Whether the statement wants values and no expression, though the grammar would take one."""
    stated = a.at.block in facts.BLOCKS or len(a.at.blocks) > 1
    return stated or a.said[0] in ("pin", "sweep", "isolate", "set")


def _keyword(word: str) -> Offer:
    form = describe.keywords().get(word, ("", ""))[0].replace("`", "")
    kind = "Operator" if word in words.words().operators else "Keyword"
    return Offer(word, kind, form, partial(describe.keyword, word), snippet=SNIPPETS.get(word))


SNIPPETS = {
    "run": "run ${1:name} {\n\t$0\n}",
    "profile": "profile ${1:name} {\n\t$0\n}",
    "rules": "rules ${1:name} {\n\t$0\n}",
    "because": 'because "$0"',
    "use": 'use "$0"',
}
"""Where a word alone is of no use."""

# ---------------------------------------------------------------- names, by statement


def _named(a: Around) -> Iterable[Offer]:
    block = a.at.block
    if block in ("model", "hardware", "calibration", "cluster", "document") or len(a.at.blocks) > 1:
        return _facts(a)
    if not a.said:
        return _starters(a) if block != "rules" else ()
    first, last = a.said[0], a.said[-1]
    if last == "cite":
        return _cites(a)
    handler = (_MEMBERS.get(first) if block == "rules" else None) or _STATEMENTS.get(first)
    if handler is not None:
        return handler(a)
    return _counts(a) if last == "x" else ()


def _starters(a: Around) -> Iterator[Offer]:
    """A bare name: a model, hardware, a profile; and the phases."""
    yield from (_phase(p) for p in axes.PHASES)
    yield from _models(a)
    yield from _hardware(a)
    yield from (Offer(n, "Module", "profile") for n in a.known.library.profiles)


def _phase(word: str) -> Offer:
    return Offer(f"{word} first", "Keyword", "phase", lambda: describe.PHASES.get(word))


def _models(a: Around) -> Iterator[Offer]:
    for name in a.known.library.models:
        yield Offer(name, "Class", "model", partial(model_doc, a.known, name))


def _hardware(a: Around) -> Iterator[Offer]:
    for name in a.known.library.hardware:
        yield Offer(name, "Struct", "hardware", partial(hardware_doc, a.known, name), snippet=f"{name} x ${{1:8}}")


def model_doc(known: Analysis, name: str) -> str | None:
    """The facts of a declared model, or None where they are incomplete."""
    made, _ = known.library.model(name)
    return describe.model(made) if made else None


def hardware_doc(known: Analysis, name: str) -> str | None:
    """The facts of declared hardware, or None where they are incomplete."""
    made, _ = known.library.gpu(name)
    return describe.hardware(made) if made else None


def _choice(options: Sequence[str], detail: str) -> Callable[[Around], Iterator[Offer]]:
    def one(a: Around) -> Iterator[Offer]:
        if len(a.said) == 1:
            yield from (Offer(o, "EnumMember", detail) for o in options)

    return one


def _counts(a: Around) -> Iterator[Offer]:
    """Whole nodes."""
    name = a.said[-2] if len(a.said) > 1 else ""
    made = a.known.library.gpu(name)[0] if name in a.known.library.hardware else None
    node = made.gpus_per_node if made else 8
    yield from (Offer(str(node * n), "Value", f"{n} nodes of {node}") for n in (1, 2, 4, 8, 16, 32, 64, 128))


def _sizes(a: Around) -> Iterator[Offer]:
    if len(a.said) == 1:
        yield from (Offer(f"{n}k", "Value", f"{n * 1024} tokens") for n in (4, 8, 16, 32, 64, 128, 256))


def _vlm(a: Around) -> Iterator[Offer]:
    for word in (*symbols.VLM_WORDS, "fsdp", "3d"):
        if word not in a.said:
            yield Offer(word, "EnumMember", "an option of vlm")


def _data(a: Around) -> Iterator[Offer]:
    yield Offer("mock", "EnumMember", "random tokens")
    yield Offer('"PATH"', "File", "a path on the cluster", insert='""', snippet='"$0"')


def _target(a: Around) -> Iterator[Offer]:
    if len(a.said) == 1:
        yield from (Offer(p, "Module", "product") for p in ("bridge", *PRODUCTS))
    elif a.said[-1] == "bridge":
        yield from (Offer(v, "Value", "known here") for v in reversed(fields.versions()))


def _run(a: Around) -> Iterator[Offer]:
    if a.said[-1] == "from":
        own = a.said[1] if len(a.said) > 2 else ""
        items = a.known.module.items if a.known.module else ()
        runs = [i.name.id for i in items if type(i).__name__ == "RunDecl"]  # type: ignore[union-attr]
        yield from (Offer(r, "Function", "run") for r in runs if r != own)


def _files(a: Around) -> Iterator[Offer]:
    """The .moe files and folders beside the file."""
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


# ---------------------------------------------------------------- pins and what is swept


def _pin(a: Around) -> Iterator[Offer]:
    """Names that are not pinned yet, and behind `=` the values of the name."""
    name, inside = _binding(a.said)
    if name is not None:
        yield from _values(a, name, inside)
        return
    taken = {a.said[i - 1] for i, text in enumerate(a.said) if text == "="}
    taken |= {*(a.program.pins if a.program else ())}
    for axis in (*axes.BY_NAME, *DERIVED, "pipeline_layout"):
        if axis not in taken:
            yield Offer(axis, "Property", _axis_detail(axis), partial(describe.name, axis), insert=f"{axis}=")


def _axis_detail(name: str) -> str:
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
    """The values of an axis; in a list its words that are not in it yet."""
    axis = axes.BY_NAME.get(name)
    if axis is None:
        yield from (Offer(w, "EnumMember", name) for w in ("true", "false") if name == "sequence_parallel")
    elif inside:
        yield from (Offer(w, "EnumMember", axis.name) for w in axis.words if w not in a.said)
    else:
        yield from _of_axis(a, axis)


def _of_axis(a: Around, axis: axes.Axis) -> Iterator[Offer]:
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
    """The pins of the same statement, as codes; what does not read as a value is left out."""
    out: dict[str, int] = {}
    for name, equal, value in zip(said, said[1:], said[2:], strict=False):
        axis = axes.BY_NAME.get(name)
        if equal == "=" and axis is not None and value.isdigit() and axis.kind == "int":
            out[name] = int(value)
        elif equal == "=" and axis is not None and axis.kind == "enum" and value in axis.words:
            out[name] = axis.encode(value)
    return out


def _swept(a: Around) -> Iterator[Offer]:
    if len(a.said) == 1:
        composites = axes.COMPOSITES if a.said[0] == "isolate" else {}
        for name in (*axes.BY_NAME, *SWEEPABLE, *composites):
            yield Offer(name, "Property", _axis_detail(name) if name in axes.BY_NAME else "", insert=f"{name} in ")
    elif "in" in a.said and a.said[1] in axes.COMPOSITES:
        yield from (Offer(w, "EnumMember", a.said[1]) for w in axes.COMPOSITES[a.said[1]] if w not in a.said)
    elif "in" in a.said and a.said[1] in axes.BY_NAME:
        yield from (o for o in _of_axis(a, axes.BY_NAME[a.said[1]]) if o.label not in a.said[3:])


# ---------------------------------------------------------------- rules, fields, facts


def _allow(a: Around) -> Iterator[Offer]:
    """Every law and advice, as `allow` writes it."""
    if len(a.said) != 1:
        return
    for r in a.rules:
        if r.kind in ("require", "prefer") and not r.wish:
            yield Offer(r.id.removeprefix("std."), "Reference", r.because or r.kind, partial(_rule_doc, a, r))


def _rule_doc(a: Around, r: Rule) -> str:
    return describe.rule(r, a.known.library.sources)


def _set(a: Around) -> Iterator[Offer]:
    if len(a.said) == 1:
        for f in fields.fields().values():
            yield Offer(f.path, "Field", f.type, partial(describe.field, f), insert=f"{f.path} = ")
        return
    known = fields.lookup(a.said[1])
    if known is None or a.said[-1] != "=":
        return
    yield from (Offer(v, "Value", known.type) for v in _field_values(known))


def _field_values(f: fields.Field) -> Iterator[str]:
    """The words of a field's type."""
    if "bool" in f.type:
        yield from ("true", "false")
    if "Literal" in f.type:
        yield from (part for i, part in enumerate(f.type.split("'")) if i % 2)
    if "Optional" in f.type or "None" in f.type:
        yield "none"


def _facts(a: Around) -> Iterator[Offer]:
    """The facts that a block may state, and the words of those that have words."""
    stated = a.said[-1] if a.said else ""
    words_ = facts.words(a.at.block, stated, a.known.library)
    if stated == "cite":
        yield from _cites(a)
    elif words_:
        yield from (Offer(w, "EnumMember", stated) for w in words_)
    else:
        for f in facts.of(a.at.block):
            if f.name not in a.said:
                yield Offer(f.name, "Property", str(f.type), partial(facts.page, a.at.block, f.name))


def _cites(a: Around) -> Iterator[Offer]:
    """The kinds of source that the rules cite."""
    kinds = dict.fromkeys(c.split(" ", 1)[0] for r in a.rules for c in r.cites)
    yield from (Offer(k, "Module", "what is cited", insert=f'{k} ""', snippet=f'{k} "$0"') for k in kinds)


def _expression(a: Around) -> Iterator[Offer]:
    """What an expression may name, and before that the words of the other side of a comparison."""
    if a.said[-1] == "worth":
        yield from (Offer(f"{n}%", "Value", "of the step time") for n in (1, 2, 5))
        return
    for word in expressions.words_of_other_side(a.said):
        yield Offer(word, "EnumMember", "compared here")
    for name, detail in expressions.names_of(a.rules):
        kind = "Function" if name in symbols.FUNCTIONS else "Variable"
        snippet = f"{name}($0)" if kind == "Function" else None
        yield Offer(name, kind, detail, partial(describe.name, name), snippet=snippet)


def _named_expression(a: Around) -> Iterator[Offer]:
    """`require NAME: ...`: the name is the writer's, in a run it may be left out."""
    if len(a.said) > 1 or a.at.block != "rules":
        yield from _expression(a)


def _let(a: Around) -> Iterator[Offer]:
    if len(a.said) > 1:
        yield from _expression(a)


def _of_a_name(kind: str) -> Callable[[Around], Iterator[Offer]]:
    """`default NAME = ...` and its like: the names that have one, then the values."""

    def found(a: Around) -> Iterator[Offer]:
        if len(a.said) == 1:
            known = dict.fromkeys(r.name for r in a.rules if r.kind == kind)
            names = known if kind in ("derive", "env") else {**dict.fromkeys(axes.BY_NAME), **known}
            yield from (Offer(n, "Property", _axis_detail(n), insert=f"{n} = ") for n in names)
            return
        if "when" not in a.said and a.said[1] in axes.BY_NAME:
            inside = a.said.count("[") > a.said.count("]")
            axis = axes.BY_NAME[a.said[1]]
            yield from (Offer(w, "EnumMember", axis.name) for w in axis.words if inside or axis.kind == "enum")
        yield from _expression(a)

    return found


def _effect(a: Around) -> Iterator[Offer]:
    if a.said[-1] == "=":
        yield from (Offer(w, "EnumMember", "what a change changes") for w in EFFECTS)


def _rules(a: Around) -> Iterator[Offer]:
    if a.said[-1] == "of":
        yield Offer("recipe", "Keyword", "existing recipes")
    elif "when" in a.said:
        yield from _expression(a)


_STATEMENTS: dict[str, Callable[[Around], Iterator[Offer]]] = {
    "model": lambda a: _models(a) if len(a.said) == 1 else iter(()),
    "hardware": lambda a: _hardware(a) if len(a.said) == 1 else _counts(a),
    "seq": _sizes,
    "precision": _choice(PRECISIONS, "precision"),
    "task": _choice(symbols.TASKS, "task"),
    "routing": _choice(symbols.ROUTINGS, "routing"),
    "vlm": _vlm,
    "data": _data,
    "pin": _pin,
    "sweep": _swept,
    "isolate": _swept,
    "allow": _allow,
    "set": _set,
    "target": _target,
    "require": _named_expression,
    "prefer": _named_expression,
    "run": _run,
    "rules": _rules,
}
_MEMBERS: dict[str, Callable[[Around], Iterator[Offer]]] = {
    **{k: _of_a_name(k) for k in ("default", "candidates", "derive", "env")},
    **dict.fromkeys(("let", "rank", "measured"), _let),
    "effect": _effect,
}
