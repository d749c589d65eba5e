"""Format text for a terminal: tables, paragraphs, amounts in messages, and hidden characters."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Generator, Iterable, Sequence
from contextlib import contextmanager
from contextvars import ContextVar

from moedsl.support.secrets import masked

WIDTH = 100
"""The most characters of a line."""
_ROOM: ContextVar[int | None] = ContextVar("room", default=None)
"""The columns of the terminal that a text is formatted for; None if unknown."""


@contextmanager
def made_for(room: int | None) -> Generator[None]:
    """Wrap paragraphs inside to at most so many columns of a terminal."""
    token = _ROOM.set(room)
    try:
        yield
    finally:
        _ROOM.reset(token)


def wrapped(text: str, first: str = "  ", rest: str | None = None, width: int = WIDTH) -> str:
    """Wrap a paragraph: `first` starts its first line, `rest` (default: `first`) the others. Words are not broken."""
    rest = first if rest is None else rest
    return textwrap.fill(text, min(width, _ROOM.get() or width), initial_indent=first, subsequent_indent=rest,
                         break_on_hyphens=False, break_long_words=False)  # fmt: skip


def table(rows: Sequence[Sequence[str]], sides: str = "r") -> list[str]:
    """Align columns: each letter of `sides`, `l` or `r`, is for one column, the last also for all further columns."""
    columns = max(map(len, rows), default=0)
    left = [s == "l" for s in sides.ljust(columns, sides[-1])]
    # A left-aligned cell that ends its row does not widen its column in other rows.
    widths = [max((len(r[i]) for r in rows if len(r) > i + left[i]), default=0) for i in range(columns)]
    cells = ([c.ljust(w) if x else c.rjust(w) for c, w, x in zip(r, widths, left, strict=False)] for r in rows)
    return [("  " + "  ".join(r)).rstrip() for r in cells]


def titled(title: str, lines: Iterable[str]) -> str:
    """Return lines below a title; "" if there are no lines."""
    below = "\n".join(lines)
    return f"{title}\n{below}" if below else ""


def bar(share: float, width: int, upper: float = 0.0) -> str:
    """Draw a share from 0 to 1 as a bar: `#` up to it, `=` from there to `upper`."""
    known, possible = (round(width * min(max(s, 0.0), 1.0)) for s in (share, upper))
    return f"[{'#' * known}{'=' * (possible - known)}".ljust(width + 1, ".") + "]"


def counted(n: int, noun: str, form: str = "d") -> str:
    """Format a count with its noun: 1 line, 2 lines, 3 batches; `form` is the number's format."""
    return f"{n:{form}} {noun}{'' if n == 1 else 'es' if noun.endswith(('s', 'ch')) else 's'}"


def tokens(n: int) -> str:
    """Format a sequence length as in a run file: 131072 is 128k."""
    return f"{n // 1024}k" if n and n % 1024 == 0 else str(n)


def ranges(numbers: Iterable[int]) -> str:
    """Format numbers as ranges: `0-3, 7`."""
    out: list[list[int]] = []
    for n in sorted({*numbers}):
        if out and n == out[-1][1] + 1:
            out[-1][1] = n
        else:
            out.append([n, n])
    return ", ".join(f"{a}-{b}" if b > a else f"{a}" for a, b in out)


def duration(seconds: float) -> str:
    """Format a time in its largest unit: 45 s, 5.2 min, 3.1 h, 12 days."""
    for unit, length in (("days", 86400.0), ("h", 3600.0), ("min", 60.0)):
        if seconds >= length * (2 if unit == "days" else 1):
            return f"{seconds / length:.3g} {unit}" if seconds < 1000 * length else f"{seconds / length:,.0f} {unit}"
    return f"{seconds:.2g} s" if seconds < 10 else f"{seconds:.0f} s"


def size(gigabytes: float) -> str:
    """Format a file size: 850 GB, 14.4 TB."""
    return f"{gigabytes / 1000:.3g} TB" if gigabytes >= 1000 else f"{gigabytes:.3g} GB"


CLOSE = "within the error, "
"""The prefix of a difference that is smaller than the estimate's error."""


def change(step_time: float, gib: float, close: bool = False) -> str:
    """Describe what a change costs in step time (a share) and memory. `close`: the estimate cannot tell the steps
    apart. What rounds to nothing is left out."""
    said = [f"{100 * step_time:+.1f}% step time"] if abs(step_time) >= 0.0005 else []
    said += [f"{gib:+.1f} GiB"] if abs(gib) >= 0.05 else []
    return f"{CLOSE * close}{', '.join(said) or 'the same time and memory'}"


def short(rule: str) -> str:
    """Remove the stdlib's `std.` from a rule's id."""
    return rule.removeprefix("std.")


HIDDEN = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\xad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u2028-\u202f"
    "\u2060-\u206f\u2800\u3164\ud800-\udfff\ufe00-\ufe0f\ufeff\uffa0\ufff0-\ufffb\U0001bca0-\U0001bca3"
    "\U0001d159\U0001d173-\U0001d17a\U000e0000-\U000e0fff]"
)
"""Control characters except tab and newline, Unicode's Default_Ignorable_Code_Point, blank letters, separators, marks
of annotations, a space that looks like another, and bytes of file names that are not UTF-8."""


def visible(text: str) -> str:
    r"""Replace the characters that `HIDDEN` matches by their codes, ``\x1b`` or ``<U+202E>``, and mask tokens."""
    shown = HIDDEN.sub(lambda m: f"\\x{ord(m[0]):02x}" if ord(m[0]) < 0x100 else f"<U+{ord(m[0]):04X}>", text)
    return masked(shown)


def in_json(text: str) -> str:
    """Replace the characters that `HIDDEN` matches by JSON escapes (`\\uXXXX`), which a JSON reader restores."""
    return HIDDEN.sub(lambda m: re.sub("....", r"\\u\g<0>", m[0].encode("utf-16-be", "surrogatepass").hex()), text)
