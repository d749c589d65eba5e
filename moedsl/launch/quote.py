"""Quote values for bash in ASCII.

Two reasons against `shlex.quote`: a locale on the way could change a byte that is not ASCII, and NeMo-Run replaces
`RUNDIR` wherever a script has it.
"""

from __future__ import annotations

import re

RUNDIR = "/nemo_run"
"""NeMo-Run replaces this path everywhere in a script if the job has no container (nemo_run
core/execution/slurm.py:1108, config.py:492)."""
_PLAIN = re.compile(r"[A-Za-z0-9_.,:/@%+=-]+")
_SHORT = {ord("\n"): r"\n", ord("\t"): r"\t", ord("\r"): r"\r", ord("\\"): r"\\", ord("'"): r"\'"}


def word(text: str) -> str:
    r"""Write `text` as one word of bash: unchanged, or as ``$'...'`` with everything except plain ASCII escaped.

    Raises ValueError for a NUL, which no argument and no variable can hold.
    """
    if "\0" in text:
        raise ValueError("a NUL cannot stand in a word of bash")
    if _PLAIN.fullmatch(text) and RUNDIR not in text:
        return text
    escaped = (
        _SHORT.get(b) or (chr(b) if 32 <= b < 127 else f"\\{b:03o}") for b in text.encode("utf-8", "surrogateescape")
    )
    return "$'" + "".join(escaped).replace(RUNDIR, r"\057" + RUNDIR[1:]) + "'"
