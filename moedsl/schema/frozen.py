"""Make frozen attrs classes that share equality, hash and repr, since attrs compiles them for each class."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any, TypeVar, dataclass_transform, overload

import attrs

C = TypeVar("C", bound=type)


@overload
def frozen(cls: C) -> C: ...
@overload
def frozen(*, kw_only: bool = False) -> Callable[[C], C]: ...
@dataclass_transform(frozen_default=True, field_specifiers=(attrs.field,))
def frozen(cls: type | None = None, **options: Any) -> Any:
    """Make a class like `attrs.frozen`; methods that the class has itself stay."""
    if cls is None:
        return lambda cls: frozen(cls, **options)
    for name, method in {"__eq__": _eq, "__hash__": _hash, "__repr__": _repr}.items():
        if name not in vars(cls):
            setattr(cls, name, method)
    return attrs.frozen(cls, eq=False, repr=False, **options)


def _eq(self: Any, other: object) -> bool:
    if other.__class__ is not self.__class__:
        return NotImplemented
    return all(getattr(self, n) == getattr(other, n) for n in compared(self.__class__))


def _hash(self: Any) -> int:
    return hash((self.__class__, *(getattr(self, n) for n in compared(self.__class__))))


def _repr(self: Any) -> str:
    values = (f"{f.name}={getattr(self, f.name)!r}" for f in attrs.fields(self.__class__) if f.repr)
    return f"{self.__class__.__qualname__}({', '.join(values)})"


@cache
def compared(cls: Any) -> tuple[str, ...]:
    """The names of the fields that equality reads."""
    return tuple(f.name for f in attrs.fields(cls) if f.eq)
