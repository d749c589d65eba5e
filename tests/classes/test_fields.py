"""Frozen classes behave like those of attrs."""

from __future__ import annotations

import pickle
from functools import cached_property
from typing import Any

import attrs
import pytest

from moedsl.classes.fields import compared, field, frozen


@frozen
class Base:
    a: int
    b: str = field(default="x", eq=False, repr=False)


@frozen
class Below(Base):
    c: list[int] = field(factory=list)
    d: tuple[int, ...] = field(converter=tuple, kw_only=True, default=())

    @cached_property
    def twice(self) -> int:
        return 2 * self.a


def test_arguments_defaults_and_converters() -> None:
    one: Any = Below(1, d=[2, 3])
    assert (one.a, one.b, one.c, one.d) == (1, "x", [], (2, 3))
    assert one.c is not Below(1).c


@pytest.mark.parametrize("make", [lambda c: c(), lambda c: c(1, "x", [], ()), lambda c: c(1, a=1), lambda c: c(1, e=2)])
def test_wrong_arguments(make: Any) -> None:
    with pytest.raises(TypeError):
        make(Below)


def test_nothing_changes_an_instance() -> None:
    one = Base(1)
    with pytest.raises(AttributeError):
        one.a = 2  # type: ignore[misc]
    with pytest.raises(AttributeError):
        del one.a  # type: ignore[misc]


def test_equality_reads_the_compared_fields_of_one_class() -> None:
    assert Base(1, "x") == Base(1, "y") and hash(Base(1, "x")) == hash(Base(1, "y"))
    assert Base(1) != Base(2) and Base(1) != Below(1)
    assert compared(Base) == ("a",) and repr(Base(1)) == "Base(a=1)"


def test_attrs_reads_the_fields() -> None:
    assert attrs.evolve(Below(1), a=2) == Below(2)
    assert attrs.asdict(Below(1)) == {"a": 1, "b": "x", "c": [], "d": ()}
    assert [f.name for f in attrs.fields(Below)] == ["a", "b", "c", "d"]
    assert not any(f.metadata for f in attrs.fields(Below))


def test_a_pickle_has_no_computed_values() -> None:
    one = Below(1, d=(2,))
    assert one.twice == 2
    back = pickle.loads(pickle.dumps(one))
    assert back == one and "twice" not in vars(back)
