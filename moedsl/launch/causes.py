"""Say which rank failed first, and what `moedsl diagnose` knows of its error."""

from __future__ import annotations

from collections.abc import Iterator

from moedsl.compiler import load_stdlib
from moedsl.diagnose import ranks, scan
from moedsl.diagnose.ranks import Failure
from moedsl.support.text import wrapped


def lines(first: Failure | None) -> Iterator[str]:
    """Write the first failure with its known causes and their fixes; nothing if no rank is known to have failed."""
    if first is None:
        return
    yield f"first to fail: {ranks.text(first)}"
    for s in scan.diagnose("", [first.error.encode()], scan.symptoms(load_stdlib())).sightings:
        yield from wrapped(f"cause: {s.rule.because} ({s.rule.id})", "  ", "    ").splitlines()
        if s.rule.fix:
            yield from wrapped(f"fix: {s.rule.fix}", "  ", "    ").splitlines()
