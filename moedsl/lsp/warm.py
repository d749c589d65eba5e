"""Prepare the first answers while the client shows the file."""

from __future__ import annotations

import gc

from moedsl import compiler
from moedsl.support.source import Source

RUN = "qwen3_30b_a3b; h100 x 8; pin tp=1 pp=1\n"


def warm_up() -> None:
    """Load the grammar, the stdlib, the solver and the names of the stdlib."""
    compiler.compile_source(Source("warm-up.moe", RUN))
    from moedsl.lsp import index

    index.stdlib()
    gc.collect()
    gc.freeze()  # what is loaded now stays, so that no edit pays for walking it
