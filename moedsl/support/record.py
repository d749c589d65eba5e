"""Define Record: a frozen class that is written to JSON and read back by its fields, in order."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import Enum
from functools import cache
from types import UnionType
from typing import Any, Final, Self, TypeVar, Union, dataclass_transform, get_args, get_origin, get_type_hints

import attrs


class Absent(Enum):
    """The value of a key that is absent, if null means something else."""

    ABSENT = "absent"


ABSENT: Final = Absent.ABSENT
AnyRecord = TypeVar("AnyRecord", bound="Record")


@dataclass_transform(frozen_default=True, field_specifiers=(attrs.field,))
def record(cls: type[AnyRecord]) -> type[AnyRecord]:
    """Make a frozen attrs class with the methods of `Record`: methods of its own would be compiled at every start."""
    return attrs.frozen(cls, eq=False, repr=False, init=False)


@dataclass_transform(frozen_default=True, kw_only_default=True, field_specifiers=(attrs.field,))
def keyed(cls: type[AnyRecord]) -> type[AnyRecord]:
    """Make a record whose fields are given by name, so that one with a default may stand before one without."""
    return attrs.frozen(cls, eq=False, repr=False, init=False, kw_only=True)


class Record:
    """A class whose JSON has a key for each field. A field with the default None or ABSENT is left out if it has that
    value. A field whose key is a word of Python ends in an underscore."""

    __slots__ = ()

    def __init__(self, *values: Any, **named: Any) -> None:
        fields = attrs.fields(type(self))
        given = dict(zip([f.name for f in fields if not f.kw_only], values, strict=False)) | named
        for f in fields:
            value = given.pop(f.name, f.default)
            if value is attrs.NOTHING:
                raise TypeError(f"{type(self).__name__} needs `{f.name}`")
            object.__setattr__(self, f.name, value)
        if given or len(values) > len(fields):
            raise TypeError(f"{type(self).__name__} has no field for {[*given] or values[len(fields) :]}")

    def to_json(self) -> dict[str, Any]:
        """Write a dictionary for `json.dumps`."""
        values = ((f, getattr(self, f.name)) for f in attrs.fields(type(self)))
        return {f.name.rstrip("_"): _plain(v) for f, v in values if not (v is f.default and v in (None, ABSENT))}

    def __eq__(self, other: object) -> bool:
        if other.__class__ is not self.__class__:
            return NotImplemented
        return all(getattr(self, f.name) == getattr(other, f.name) for f in attrs.fields(type(self)))

    def __hash__(self) -> int:
        return hash((self.__class__, *(getattr(self, f.name) for f in attrs.fields(type(self)))))

    def __repr__(self) -> str:
        values = (f"{f.name}={getattr(self, f.name)!r}" for f in attrs.fields(type(self)))
        return f"{type(self).__name__}({', '.join(values)})"

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Self:
        """Read a record from the `data` of `to_json`; unknown keys are ignored.

        Raises ValueError if a key is missing or an object is of another type.
        """
        if not isinstance(data, Mapping):
            raise ValueError(f"{cls.__name__} is not an object")
        hints, values = type_hints(cls), dict[str, Any]()
        for f in attrs.fields(cls):
            key = f.name.rstrip("_")
            if key in data:
                values[f.name] = _read(hints.get(f.name, Any), data[key])
            elif f.default is attrs.NOTHING:
                raise ValueError(f"{cls.__name__} has no `{key}`")
        return cls(**values)


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
