"""Values that are read from a cache only when somebody reads them."""

from __future__ import annotations

import pickle

from moedsl.support.packed import Packed
from moedsl.support.source import Span


class Counted:
    """A value that counts how often one is unpickled."""

    read = 0

    def __setstate__(self, state: object) -> None:
        Counted.read += 1

    def __getstate__(self) -> object:
        return {"a": 1}


def test_names_are_known_without_reading_a_value() -> None:
    kept = pickle.loads(pickle.dumps(Packed({"a": Counted(), "b": Counted()})))
    assert [*kept] == ["a", "b"] and len(kept) == 2 and "a" in kept and "c" not in kept
    assert Counted.read == 0
    assert kept["a"] is kept["a"] and Counted.read == 1


def test_a_value_comes_back_as_it_was() -> None:
    assert dict(Packed({"x": Span("a.moe", 1, 2)})) == {"x": Span("a.moe", 1, 2)}
