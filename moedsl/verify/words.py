"""Turn an exception of NVIDIA's code into a Refusal: its message and the line that raised it."""

from __future__ import annotations

import traceback

from moedsl.verify.report import Refusal

LONGEST = 2000


def refusal(error: BaseException, question: str) -> Refusal:
    """`where` is the innermost line, below site-packages where it lies there."""
    last = traceback.extract_tb(error.__traceback__)[-1]
    where = f"{last.filename.split('site-packages/')[-1]}:{last.lineno}"
    return Refusal(where, type(error).__name__, str(error).strip()[:LONGEST], question)


def is_theirs(error: BaseException) -> bool:
    """Whether the exception passed through NVIDIA's code, or Transformer Engine's, at its innermost three lines."""
    last = traceback.extract_tb(error.__traceback__)[-3:]
    return any("/megatron/" in f.filename or "/transformer_engine/" in f.filename for f in last)
