"""Complete the word at the cursor, also in half-written files.

What is offered depends on the statement; names come from the compiler's tables.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial

from lsprotocol import types

from moedsl.facts import axes, symbols
from moedsl.facts.field_words import KEYWORDS
from moedsl.lang import keywords
from moedsl.lsp import describe, offers
from moedsl.lsp.document import Document
from moedsl.lsp.place import Around, Offer, place, terminal_words
from moedsl.rules.check.statements import UNITS
from moedsl.rules.rule import EFFECTS

VLM_WORDS = (*symbols.VLM_WORDS, "fsdp", "3d")
MOST = 300
"""The most items of one answer; if there are more, the client asks again as the word grows."""


def completion(document: Document, params: types.CompletionParams) -> types.CompletionList:
    """Return the items that match the word before the cursor."""
    at = place(document.text, document.lines.offset(params.position))
    typed = at.word if at.string is None else at.string.rsplit("/", 1)[-1]
    word = typed.lower()
    fitting = [o for o in offered(Around(document, document.known or document.analysis, at)) if fits(word, o.label)]
    shown = sorted(fitting, key=lambda o: not o.label.startswith(typed))[:MOST] if typed else fitting[:MOST]
    cursor = at.start + len(at.word)
    start = at.start if at.string is None else at.start - len(typed)
    before, whole = document.lines.range(start, cursor), document.lines.range(start, at.end)
    replaces = document.client.insert_replace and at.end != cursor
    items: list[types.CompletionItem] = []
    for rank, o in enumerate(shown):
        snippet = o.snippet if document.client.snippets else None
        text = snippet or o.insert or o.label
        doc: types.MarkupContent | str | None = o.doc() if o.doc is not None else None
        if doc is not None and document.client.completion_markdown:
            doc = types.MarkupContent(types.MarkupKind.Markdown, doc)
        elif doc is not None:
            doc = describe.plain(doc)
        items.append(
            types.CompletionItem(
                label=o.label,
                kind=types.CompletionItemKind[o.kind],
                detail=o.detail or None,
                documentation=doc,
                sort_text=f"{rank:04}",
                text_edit=types.InsertReplaceEdit(text, before, whole) if replaces else types.TextEdit(before, text),
                insert_text_format=types.InsertTextFormat.Snippet if snippet else None,
            )
        )
    return types.CompletionList(is_incomplete=len(fitting) > MOST, items=items)


def fits(typed: str, label: str) -> bool:
    """Whether the letters of a lower-case word occur in a label in the same order, in any case."""
    label, at = label.lower(), 0
    for c in typed:
        at = label.find(c, at) + 1
        if not at:
            return False
    return True


def offered(a: Around) -> list[Offer]:
    """Return everything that may follow at the place, the likeliest first."""
    if a.at.string is not None:
        return list(offers.files(a)) if a.said == ("use",) else []
    found: list[Offer] = []
    if a.said and a.said[-1].isdigit():  # for the grammar, a number and its unit are one word
        name = a.said[-2] if len(a.said) > 1 else ""
        units = describe.units(a.at.block, name) or offers.units_of_other_side(a.said[:-1])
        found += [Offer(u, "Unit", "unit") for u in (("%",) if name == "worth" else units)]
    if a.at.accepts & {"NAME", "WORD", "VERSION", "NUMBER", "STRING"}:
        found += _names(a)
    skipped = _meaningless(a)
    for word in [t.lower() for t in sorted(a.at.accepts)]:
        if word in terminal_words() and word not in skipped:
            form = describe.keywords().get(word, ("", ""))[0].replace("`", "")
            kind = "Operator" if word in keywords.keywords().operators else "Keyword"
            found.append(Offer(word, kind, form, partial(describe.keyword, word), snippet=SNIPPETS.get(word)))
    return found


def _meaningless(a: Around) -> set[str]:
    """Return the keywords that the grammar accepts but that mean nothing here.

    `x` follows only hardware, and `first` only a phase. Statements of values have no use for the words of expressions.
    """
    if not a.said:
        return {"first", "x"}
    first = a.said[0]
    is_plain = a.at.block in describe.BLOCKS or len(a.at.blocks) > 1 or first in ("pin", "sweep", "isolate", "set")
    hidden = {"if", "not", "true", "false"} if is_plain else set[str]()
    hidden |= set() if first in a.known.library.hardware or first == "hardware" else {"x"}
    return hidden if first in axes.PHASES else hidden | {"first"}


def _names(a: Around) -> Iterable[Offer]:
    """Return offers of names and words for the statement."""
    block = a.at.block
    if block in ("model", "hardware", "calibration", "cluster", "document") or len(a.at.blocks) > 1:
        return offers.stated(a)
    if not a.said:
        return offers.starters(a) if block != "rules" else ()
    first, last = a.said[0], a.said[-1]
    if last == "cite":
        return offers.cites(a)
    handler = (_MEMBERS.get(first) if block == "rules" else None) or _STATEMENTS.get(first)
    if handler is not None:
        return handler(a)
    return offers.counts(a) if last == "x" else ()


SNIPPETS = {
    "run": "run ${1:name} {\n\t$0\n}",
    "profile": "profile ${1:name} {\n\t$0\n}",
    "rules": "rules ${1:name} {\n\t$0\n}",
    "because": 'because "$0"',
    "use": 'use "$0"',
}
"""Snippets for keywords that need more text after them."""


_STATEMENTS: dict[str, Callable[[Around], Iterable[Offer]]] = {
    "model": lambda a: offers.models(a) if len(a.said) == 1 else (),
    "hardware": lambda a: offers.hardware(a) if len(a.said) == 1 else offers.counts(a),
    "seq": offers.first(Offer(f"{n}k", "Value", f"{n * 1024} tokens") for n in (4, 8, 16, 32, 64, 128, 256)),
    "precision": offers.first(offers.words(symbols.PRECISIONS, "precision")),
    "task": offers.first(offers.words(symbols.TASKS, "task")),
    "adapter": offers.adapter,
    "routing": offers.first(offers.words(symbols.ROUTINGS, "routing")),
    "risk": offers.first(offers.words(symbols.RISKS, "risk")),
    "vlm": lambda a: offers.words((w for w in VLM_WORDS if w not in a.said), "an option of vlm"),
    "data": offers.data,
    "weights": offers.first(offers.hub_or_path("a model of Hugging Face", "a checkpoint on the cluster")),
    "pin": offers.pin,
    "sweep": offers.swept,
    "isolate": offers.swept,
    "allow": offers.allow,
    "set": offers.set_field,
    "resilience": offers.resilience,
    **dict.fromkeys(KEYWORDS, offers.fields_of),
    "for": lambda a: offers.words(UNITS if len(a.said) == 2 else (), "the length of the training"),
    "target": offers.target,
    # in a run, a name may be omitted
    **dict.fromkeys(
        ("require", "prefer"), lambda a: offers.expression(a) if len(a.said) > 1 or a.at.block != "rules" else ()
    ),
    "run": offers.run,
    "rules": offers.rules,
}
_MEMBERS: dict[str, Callable[[Around], Iterable[Offer]]] = {
    **{k: offers.of_a_name(k) for k in ("default", "candidates", "derive", "env")},
    **dict.fromkeys(("let", "rank", "measured"), lambda a: offers.expression(a) if len(a.said) > 1 else ()),
    "effect": lambda a: offers.words(EFFECTS if a.said[-1] == "=" else (), "what a change affects"),
}
