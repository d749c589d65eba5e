"""Spare what NVIDIA's code repeats for each layer and each process group, and no answer depends on."""

from __future__ import annotations

import functools
import importlib
import logging
from typing import Any

_YARN = "megatron.core.models.common.embeddings.yarn_rotary_pos_embedding"


@functools.cache
def spare() -> None:
    """For the rest of the process."""
    utils: Any = importlib.import_module("megatron.core.utils")
    if utils.HAVE_PACKAGING:
        utils.PkgVersion = functools.cache(utils.PkgVersion)  # each group compares torch's (parallel_state.py:249)
    _angles_when_read(importlib.import_module(_YARN).YarnRotaryEmbedding)
    _levels_that_change(logging.Logger)


def _angles_when_read(embedding: Any) -> None:
    """Leave the table of cosines and sines, which each latent attention makes for itself, to the first forward."""
    make = embedding._set_cos_sin_cache

    def later(self: Any, *given: Any, **named: Any) -> None:
        if hasattr(self, "max_seq_len_cached"):
            make(self, *given, **named)
        else:
            self.max_seq_len_cached = -1

    embedding._set_cos_sin_cache = later


def _levels_that_change(logger: Any) -> None:
    """Set a logger's level only to another one: each attention of Transformer Engine sets it, which empties the caches
    of a thousand loggers."""
    change = logger.setLevel

    def set_level(self: Any, level: Any) -> None:
        if level != self.level:
            change(self, level)

    logger.setLevel = set_level
