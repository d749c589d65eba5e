"""`moedsl explain FILE [NAME...]`: explain values. `moedsl explain ID`: print the page of a rule or a name."""

from __future__ import annotations

import os
import sys
from argparse import Namespace

from moedsl.cli import talk
from moedsl.compiler import load_stdlib


def run(a: Namespace) -> int:
    """Explain a run for a file, standard input or -e; look up anything else."""
    words = list[str](a.what)
    if a.expression is not None:
        return _of_run(a, words)
    if words and (words[0] == "-" or words[0].endswith(".moe") or os.path.isfile(words[0])):
        a.file = words[0]
        return _of_run(a, words[1:])
    if not words:
        print(
            "give a .moe file and perhaps names, or the id of a rule; `moedsl explain rules` lists them",
            file=sys.stderr,
        )
        return 1
    return max(_page(id) for id in words)


def _page(id: str) -> int:
    from moedsl.reference import page

    library = load_stdlib()
    text = page.listing(library) if id == "rules" else page.page(id, library)
    if text is None:
        print(f"nothing is called `{id}`; {page.hint(id, library)}", file=sys.stderr)
        return 1
    talk.print_text(lambda: text)
    return 0


def _of_run(a: Namespace, names: list[str]) -> int:
    from moedsl.explainer.text import text_of
    from moedsl.queries.explain_run import answer

    source, diagnostics = talk.source_of(a)
    if source is None:
        talk.say(diagnostics, {})
        return 1
    result = answer(source, names, a.run, a.like)
    if a.json:
        made = result.explanations
        failed = talk.failed_json(result.diagnostics, result.sources) if result.diagnostics else {}
        talk.print_json(made[0] if len(made) == 1 and not failed else {"version": 1, "explanations": [*made], **failed})
    else:
        talk.print_text(lambda: "\n".join(text_of(e) for e in result.explanations), end="")
    talk.say(result.diagnostics, result.sources)
    return int(result.failed)
