"""Convert attrs classes to JSON and back by their fields, in order.

A key is the field's name without a trailing underscore (`from_` becomes `from`). A field whose default is None or
ABSENT is omitted while it has that value.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import Enum
from functools import cache
from types import UnionType
from typing import TYPE_CHECKING, Any, ClassVar, Final, Self, Union, get_args, get_origin, get_type_hints

import attrs


class Absent(Enum):
    """The value of a field whose key is absent, where null means something else."""

    ABSENT = "absent"


ABSENT: Final = Absent.ABSENT


class JsonForm:
    """Base of attrs classes that are written to JSON and read back."""

    __slots__ = ()
    if TYPE_CHECKING:  # given by attrs
        __attrs_attrs__: ClassVar[tuple[attrs.Attribute[Any], ...]]

    def to_json(self) -> dict[str, Any]:
        """Return a dictionary for `json.dumps`."""
        values = ((f, getattr(self, f.name)) for f in attrs.fields(type(self)))
        return {key(f): _plain(v) for f, v in values if not (v is f.default and v in (None, ABSENT))}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Self:
        """Make an object from a dictionary of `to_json`; ignore unknown keys.

        Raise ValueError if a key is missing or a value has another type.
        """
        if not isinstance(data, Mapping):
            raise ValueError(f"{cls.__name__} is not an object")
        hints, values = type_hints(cls), dict[str, Any]()
        for f in attrs.fields(cls):
            if key(f) in data:
                values[f.name] = _read(hints[f.name], data[key(f)])
            elif f.default is attrs.NOTHING:
                raise ValueError(f"{cls.__name__} has no `{key(f)}`")
        return cls(**values)


def key(field: attrs.Attribute[Any]) -> str:
    """Return a field's key in JSON."""
    return field.name.rstrip("_")


@cache
def type_hints(cls: type[JsonForm]) -> dict[str, Any]:
    """Return the evaluated annotations of a class's fields."""
    return get_type_hints(cls)


def _plain(value: Any) -> Any:
    if isinstance(value, JsonForm):
        return value.to_json()
    if isinstance(value, Mapping):
        return {k: _plain(v) for k, v in value.items()}
    return [_plain(v) for v in value] if isinstance(value, list | tuple) else value


def _read(hint: Any, data: Any) -> Any:
    """Convert a JSON value to an annotated type."""
    origin, args = get_origin(hint), get_args(hint)
    if origin in (Union, UnionType):
        inner = [a for a in args if a not in (type(None), Absent)]
        return data if data is None or len(inner) > 1 else _read(inner[0], data)
    if isinstance(hint, type) and issubclass(hint, JsonForm):
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
