"""What an experiment is called: its only job's name, or the file whose runs its jobs are."""

from __future__ import annotations

import itertools
import re
from collections.abc import Sequence
from pathlib import PurePath

LONGEST = 100
"""Characters: a folder's name holds 255 bytes with the number and the mark after it."""
_SIGNS = "_.-"


def title(jobs: Sequence[str], source: str = "") -> str:
    """Letters, digits and a few signs. One job gives its name, several the stem of the file `source`.

    Where no file is named (``<text>``, ``<stdin>``), or nothing is left of its stem, it is what the names of the jobs
    begin with alike, up to a sign.
    """
    if len(jobs) == 1:
        return jobs[0]
    stem = "" if not source or source.startswith("<") else PurePath(source).stem
    return _plain(stem) or _shared(jobs) or "runs"


def _plain(text: str) -> str:
    return re.sub(r"[^A-Za-z0-9_.-]+", "-", text)[:LONGEST].strip(_SIGNS)


def _shared(jobs: Sequence[str]) -> str:
    """``a_16gpu_h100.main`` of ``a_16gpu_h100.main.ep_8`` and ``a_16gpu_h100.main.tp_2``."""
    each = zip(*(re.findall(rf"[^{_SIGNS}]*[{_SIGNS}]?", job) for job in jobs), strict=False)
    return "".join(words[0] for words in itertools.takewhile(lambda words: len(set(words)) == 1, each)).strip(_SIGNS)
