"""Quote values for bash in ASCII, so that no locale on the way can change a byte."""

from __future__ import annotations

import re

from moedsl.support.diagnostics import Diagnostic, error

RUNDIR = "/nemo_run"
"""NeMo-Run replaces this path everywhere in a script if the job has no container (nemo_run
core/execution/slurm.py:1108, config.py:492)."""
_PLAIN = re.compile(r"[A-Za-z0-9_.,:/@%+=-]+")
_SHORT = {"\n": r"\n", "\t": r"\t", "\r": r"\r", "\\": r"\\", "'": r"\'"}


def word(text: str) -> str:
    r"""Write `text` as one word of bash: unchanged, or as ``$'...'`` with everything except plain ASCII escaped.

    Raises ValueError for a NUL, which no argument and no variable can hold; `refusal` reports it beforehand.
    """
    if "\0" in text:
        raise ValueError("a NUL cannot stand in a word of bash")
    if _PLAIN.fullmatch(text) and RUNDIR not in text:
        return text
    return "$'" + "".join(map(_escaped, text)).replace(RUNDIR, r"\057" + RUNDIR[1:]) + "'"


def _escaped(c: str) -> str:
    if c in _SHORT:
        return _SHORT[c]
    if " " <= c <= "~":
        return c
    return "".join(f"\\{b:03o}" for b in c.encode("utf-8", "surrogateescape"))


def export(name: str, value: str) -> str:
    """Write a line that sets a variable for every later process of the script."""
    return f"export {name}={word(value)}"


def document(target: str, text: str, delimiter: str) -> str:
    """Write lines that put `text` into the file that the bash word `target` names, without expansion.

    The text is ASCII and ends with a newline; the delimiter grows until no line of the text equals it.
    """
    while delimiter in text.splitlines():
        delimiter += "_"
    return f"cat > {target} <<'{delimiter}'\n{text}{delimiter}\n"


def ascii_source(text: str) -> str:
    """Write Python source in ASCII; only comments and docstrings can have other characters, which are escaped."""
    ended = text if text.endswith("\n") else text + "\n"
    return ended.encode("ascii", "backslashreplace").decode("ascii")


def refusal(text: str, has_container: bool) -> Diagnostic | None:
    """Refuse a file whose text NeMo-Run would change, because it replaces a path in it."""
    if has_container or RUNDIR not in text:
        return None
    message = f"the recipe names {RUNDIR}, which NeMo-Run replaces by the job's own folder if there is no container"
    return error("launch.reserved_path", message, help="use another path, or give the cluster a container")
