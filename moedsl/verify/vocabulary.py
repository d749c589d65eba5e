"""Handle a recipe whose vocabulary comes from a tokenizer that a run would download and this machine does not have."""

from __future__ import annotations

from typing import Any


def stand_in(config: Any) -> tuple[str, ...]:
    """Gives the model the rows that its tokenizer's own model has, as setup makes them the tokenizer's (bridge
    training/setup.py:681); what stood in. A tokenizer of no known model leaves them open: then nothing is built."""
    if getattr(config.model, "vocab_size", 0) is not None:
        return ()
    name = config.tokenizer.tokenizer_model
    rows = config.tokenizer.vocab_size or _published(name)
    if rows is None:
        return ()
    config.model.vocab_size, config.model.should_pad_vocab = rows, True
    return (f"the tokenizer {name} (its vocabulary is assumed to be {rows}, that of its model)",)


def _published(name: str | None) -> int | None:
    """The vocabulary of a model's configuration, where there is one."""
    from transformers import AutoConfig

    try:
        return AutoConfig.from_pretrained(name).vocab_size if name else None
    except (OSError, ValueError, AttributeError):
        return None
