"""`moedsl check` and `moedsl explain`: what is wrong in a run file, and what its values, rules and names mean."""

from __future__ import annotations

import os
import sys
from argparse import Namespace
from typing import Any

from moedsl.cli import console
from moedsl.cli.terminal import Refused
from moedsl.compiler import compile_source, load_stdlib


def check(a: Namespace) -> int:
    """Print the diagnostics of every file, even after errors in others; return the worst exit code.

    The search runs too, because an infeasible wish is a mistake of the file.
    """
    files: list[str | None] = [*a.files] or [None]
    checked: list[tuple[int, dict[str, Any]]] = []
    for file in files:
        try:
            source = console.source_of(Namespace(file=file, expression=a.expression))
            result = compile_source(source, "plan", console.Progress(), console.layout_of(a.like), asks="diagnostics")
            found, sources, failed = result.diagnostics, result.sources, result.failed
        except Refused as why:
            found, sources, failed = why.diagnostics, why.sources, True
        console.say(found, sources)
        checked.append((int(failed), console.failed_json(found, sources)))
    if a.sarif:
        console.print_sarif(d for _, found in checked for d in found["diagnostics"])
    elif a.json:
        several = {"version": 1, "files": [{"file": f, **found} for f, (_, found) in zip(files, checked, strict=True)]}
        console.print_json(checked[0][1] if len(files) == 1 else several)
    return max(code for code, _ in checked)


def explain(a: Namespace) -> int:
    """Explain the run in a file, standard input or -e; for any other words, print their reference pages."""
    words = list[str](a.what)
    if a.expression is not None:
        return _explain_run(a, words)
    if words and (words[0] == "-" or words[0].endswith(".moe") or os.path.isfile(words[0])):
        a.file = words[0]
        return _explain_run(a, words[1:])
    if not words:
        print(
            "give a .moe file and perhaps names, or the id of a rule; `moedsl explain rules` lists them",
            file=sys.stderr,
        )
        return 1
    from moedsl.cli.reference import page

    library = load_stdlib()
    found = {id: page.listing(library) if id == "rules" else page.page(id, library) for id in words}
    if a.json:
        console.print_json({"version": 1, "pages": [{"name": id, "text": text} for id, text in found.items()]})
    for id, text in found.items():
        if text is None:
            print(f"nothing is called `{id}`; {page.hint(id, library)}", file=sys.stderr)
        elif not a.json:
            console.print_text(lambda text=text: text)
    return int(None in found.values())


def _explain_run(a: Namespace, names: list[str]) -> int:
    from moedsl.cli.reference.page import page
    from moedsl.queries.explain import answer
    from moedsl.queries.explain_text import text_of

    result = answer(console.source_of(a), names, a.run, a.like, page)
    made = result.explanations
    failed = console.failed_json(result.diagnostics, result.sources) if result.diagnostics else {}
    data = made[0] if len(made) == 1 and not failed else {"version": 1, "explanations": [*made], **failed}
    console.print_answer(a, data, lambda: "\n".join(map(text_of, made)), end="")
    console.say(result.diagnostics, result.sources)
    return int(result.failed)
