"""Define Record: a frozen class that is written to JSON and read back by its fields, in order.

attrs would compile methods for fifty such classes at every start; a record looks up its fields when it is made.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import Enum
from functools import cache
from types import UnionType
from typing import (
    Any,
    ClassVar,
    Final,
    NamedTuple,
    Self,
    Union,
    dataclass_transform,
    get_args,
    get_origin,
    get_type_hints,
)


class Absent(Enum):
    """The value of a key that is absent, if null means something else."""

    ABSENT = "absent"


ABSENT: Final = Absent.ABSENT
REQUIRED: Final = object()
"""The default of a field that has none."""


class Field(NamedTuple):
    """A field of a record. A name that would be a word of Python ends in an underscore, its key in JSON does not."""

    name: str
    key: str
    default: Any


@dataclass_transform(frozen_default=True)
class Record:
    """A frozen class whose JSON has a key for each field. A field with the default None or ABSENT is left out if it has
    that value.

    `first` names fields that come first and need no annotation. With `kw_only`, fields are given by name: one with a
    default may stand before one without.
    """

    first_fields: ClassVar[tuple[str, ...]] = ()

    def __init_subclass__(cls, *, first: tuple[str, ...] = (), kw_only: bool = False) -> None:
        cls.first_fields = (*first, *cls.first_fields)

    def __init__(self, *values: Any, **named: Any) -> None:
        every = fields(type(self))
        given = {f.name: v for f, v in zip(every, values, strict=False)} | named
        for f in every:
            value = given.pop(f.name, f.default)
            if value is REQUIRED:
                raise TypeError(f"{type(self).__name__} needs `{f.name}`")
            self.__dict__[f.name] = value
        if given or len(values) > len(every):
            raise TypeError(f"{type(self).__name__} has no field for {[*given] or values[len(every) :]}")

    def __setattr__(self, name: str, value: Any) -> None:
        raise AttributeError(f"{type(self).__name__} is frozen: `{name}` cannot be set")

    def replace(self, **changes: Any) -> Self:
        """Return the record with other values of some fields."""
        return type(self)(**self.__dict__ | changes)

    def to_json(self) -> dict[str, Any]:
        """Write a dictionary for `json.dumps`."""
        values = ((f, self.__dict__[f.name]) for f in fields(type(self)))
        return {f.key: _plain(v) for f, v in values if not (v is f.default and v in (None, ABSENT))}

    def __eq__(self, other: object) -> bool:
        return self.__dict__ == other.__dict__ if other.__class__ is self.__class__ else NotImplemented

    def __hash__(self) -> int:
        return hash((self.__class__, *self.__dict__.values()))

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(f'{n}={v!r}' for n, v in self.__dict__.items())})"

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Self:
        """Read a record from the `data` of `to_json`; unknown keys are ignored.

        Raises ValueError if a key is missing or an object is of another type.
        """
        if not isinstance(data, Mapping):
            raise ValueError(f"{cls.__name__} is not an object")
        hints, values = type_hints(cls), dict[str, Any]()
        for f in fields(cls):
            if f.key in data:
                values[f.name] = _read(hints.get(f.name, Any), data[f.key])
            elif f.default is REQUIRED:
                raise ValueError(f"{cls.__name__} has no `{f.key}`")
        return cls(**values)


@cache
def fields(cls: type[Record]) -> tuple[Field, ...]:
    """The fields of a record: its first, then those of its bases, then its own."""
    annotated = (
        n for c in reversed(cls.__mro__) if issubclass(c, Record) for n in c.__annotations__ if c is not Record
    )
    names = dict.fromkeys((*cls.first_fields, *annotated))
    return tuple(Field(n, n.rstrip("_"), getattr(cls, n, REQUIRED)) for n in names)


@cache
def type_hints(cls: type[Record]) -> dict[str, Any]:
    """The evaluated annotations of a record's fields."""
    return get_type_hints(cls)


def _plain(value: Any) -> Any:
    if isinstance(value, Record):
        return value.to_json()
    if isinstance(value, Mapping):
        return {k: _plain(v) for k, v in value.items()}
    return [_plain(v) for v in value] if isinstance(value, list | tuple) else value


def _read(hint: Any, data: Any) -> Any:
    """Convert a value of JSON to the type of an annotation."""
    origin, args = get_origin(hint), get_args(hint)
    if origin in (Union, UnionType):
        inner = [a for a in args if a not in (type(None), Absent)]
        return data if data is None or len(inner) > 1 else _read(inner[0], data)
    if isinstance(hint, type) and issubclass(hint, Record):
        return hint.from_json(data)
    if origin is tuple:
        return tuple(_read(args[0], v) for v in _expect(data, list))
    if origin in (dict, Mapping):
        return {k: _read(args[1], v) for k, v in _expect(data, dict).items()}
    return _expect(data, list) if origin is Sequence else data


def _expect(data: Any, kind: type) -> Any:
    if not isinstance(data, kind):
        raise ValueError(f"{data!r} is not a JSON {'array' if kind is list else 'object'}")
    return data
