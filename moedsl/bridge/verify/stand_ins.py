"""Make stand-ins for what a recipe names and this machine does not have: checkpoint, tokenizer and processor."""

from __future__ import annotations

import importlib
from collections.abc import Generator
from contextlib import contextmanager
from typing import Any
from unittest.mock import MagicMock, patch


@contextmanager
def checkpoint(config: Any) -> Generator[tuple[str, ...]]:
    """Let Bridge find `checkpoint.pretrained_checkpoint` (bridge training/config.py:594); yield what was replaced."""
    utils: Any = importlib.import_module("megatron.bridge.training.utils.checkpoint_utils")
    named, real = config.checkpoint.pretrained_checkpoint, utils.file_exists
    if named is None or real(named):
        yield ()
        return
    with patch.object(utils, "file_exists", lambda path: path == named or real(path)):
        yield (f"the checkpoint {named} (not on this machine: nothing of it was read)",)


@contextmanager
def weights(config: Any) -> Generator[None]:
    """Let Bridge accept a recipe of adapters that leaves the name of its weights to the user, as all of Bridge's own do
    (bridge recipes/common.py:318, training/config.py:1488)."""
    if config.peft is None or config.checkpoint.pretrained_checkpoint is not None:
        yield
        return
    config.checkpoint.pretrained_checkpoint = "named by the user"
    try:
        with checkpoint(config):
            yield
    finally:
        config.checkpoint.pretrained_checkpoint = None


@contextmanager
def processors() -> Generator[list[str]]:
    """Let a recipe load the tokenizer and the processor of a model whose files are not here, as the datasets of images
    before Bridge 0.6 do; yield what was replaced."""
    import transformers

    replaced: list[str] = []

    def of(kind: Any) -> Any:
        real = kind.from_pretrained.__func__

        def load(cls: type, name: str, *more: Any, **options: Any) -> Any:
            try:
                return real(cls, name, *more, **options)
            except OSError:  # transformers' word for files that are not here
                replaced.append(f"the files of {name} that a dataset of images reads (not on this machine)")
                return MagicMock(name=name)

        return patch.object(kind, "from_pretrained", classmethod(load))

    with of(transformers.AutoTokenizer), of(transformers.ProcessorMixin):
        yield replaced


def vocabulary(config: Any) -> tuple[str, ...]:
    """Give the model the rows of its tokenizer's own model, as setup takes the rows of the tokenizer (bridge
    training/setup.py:681), and return what was replaced. Without a known model nothing is built."""
    if getattr(config.model, "vocab_size", 0) is not None:
        return ()
    name = config.tokenizer.tokenizer_model
    rows = config.tokenizer.vocab_size or _published(name)
    if rows is None:
        return ()
    config.model.vocab_size, config.model.should_pad_vocab = rows, True
    return (f"the tokenizer {name} (its vocabulary is assumed to be {rows}, that of its model)",)


def _published(name: str | None) -> int | None:
    """The vocabulary of a model's configuration, if it has one."""
    from transformers import AutoConfig

    try:
        return AutoConfig.from_pretrained(name).vocab_size if name else None
    except (OSError, ValueError, AttributeError):
        return None
