"""Read a pickle that holds only plain values, without executing it."""

from __future__ import annotations

import pickle
from typing import Any, BinaryIO, NoReturn


class NotPlain(ValueError):
    """Says what a pickle holds besides plain values, or that it is damaged."""


class _Plain(pickle.Unpickler):
    """Lists, dictionaries, numbers and texts need no global, so none is looked up."""

    def find_class(self, module: str, name: str) -> NoReturn:
        raise NotPlain(f"it names {module}.{name}, and reading it would run code")

    def persistent_load(self, pid: Any) -> NoReturn:
        raise NotPlain("it refers to another file")


def load(stream: BinaryIO) -> Any:
    """Read one value; raises NotPlain."""
    try:
        return _Plain(stream).load()
    except NotPlain:
        raise
    except (pickle.UnpicklingError, EOFError, ValueError, LookupError, AttributeError, TypeError, OverflowError) as e:
        raise NotPlain(f"it is damaged or no pickle: {e}") from None
