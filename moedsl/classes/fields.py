"""Make classes of fields that share their methods: attrs compiles some for each class, a tenth of a start.

The fields are where attrs looks for them, so its `asdict`, `evolve` and `fields` work with such a class too.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache
from operator import attrgetter
from typing import Any, Final, NamedTuple, TypeVar, dataclass_transform, overload

T = TypeVar("T")
C = TypeVar("C", bound=type)
REQUIRED: Final = object()
"""The default of a field that has none."""


class Field(NamedTuple):
    """A field of a class."""

    default: Any = REQUIRED
    factory: Callable[[], Any] | None = None
    converter: Callable[[Any], Any] | None = None
    kw_only: bool = False
    init: bool = True
    eq: bool = True
    repr: bool = True
    name: str = ""
    type: str = ""

    @property
    def alias(self) -> str:
        """The name of the argument."""
        return self.name

    @property
    def metadata(self) -> Mapping[str, Any]:
        """Nothing; fields of attrs may have some."""
        return {}


def field(
    *,
    default: Any = REQUIRED,
    factory: Callable[[], Any] | None = None,
    converter: Callable[[Any], Any] | None = None,
    kw_only: bool = False,
    init: bool = True,
    eq: bool = True,
    repr: bool = True,
) -> Any:
    """Declare a field like `attrs.field`."""
    return Field(default, factory, converter, kw_only, init, eq, repr)


@dataclass_transform(field_specifiers=(field,))
def define(cls: C) -> C:
    """Make a class like `attrs.define`; methods that the class has itself stay."""
    return _made(cls, kw_only=False, methods={**_SHARED, "__hash__": None})


@overload
def frozen(cls: C) -> C: ...
@overload
def frozen(*, kw_only: bool = False, cache_hash: bool = False) -> Callable[[C], C]: ...
@dataclass_transform(frozen_default=True, field_specifiers=(field,))
def frozen(cls: type | None = None, *, kw_only: bool = False, cache_hash: bool = False) -> Any:
    """Make a class like `attrs.frozen`; methods that the class has itself stay."""
    methods = {**_SHARED, "__setattr__": _refuse, "__delattr__": _refuse}
    methods["__hash__"] = _kept_hash if cache_hash else _hash
    if cls is None:
        return lambda cls: _made(cls, kw_only, methods)
    return _made(cls, kw_only, methods)


def evolve(it: T, **changes: Any) -> T:
    """Make a copy with other values of some fields."""
    arguments = getattr(it.__class__, "__arguments__", None)
    if arguments is None or not arguments.plain:
        return it.__class__(**{f.name: getattr(it, f.name) for f in fields(it.__class__) if f.init} | changes)
    old, made = it.__dict__, object.__new__(it.__class__)
    made.__dict__.update({name: old[name] for name in arguments.every} | changes)
    if len(made.__dict__) != len(arguments.every):
        raise TypeError(f"wrong arguments: {', '.join(sorted(changes.keys() - arguments.every))}")
    return made


def values(it: Any) -> tuple[Any, ...]:
    """The values of the fields."""
    return tuple(getattr(it, f.name) for f in fields(it.__class__))


def fields(cls: Any) -> tuple[Field, ...]:
    """The fields of a class, those of its bases first."""
    return cls.__attrs_attrs__


@cache
def compared(cls: Any) -> tuple[str, ...]:
    """The names of the fields that equality reads."""
    return tuple(f.name for f in fields(cls) if f.eq)


@cache
def _read(cls: Any) -> Callable[[Any], Any]:
    names = compared(cls)
    return attrgetter(*names) if names else lambda _: ()


def _made(cls: C, kw_only: bool, methods: dict[str, Any]) -> C:
    inherited = {f.name: f for base in reversed(cls.__mro__[1:]) for f in vars(base).get("__attrs_attrs__", ())}
    own = {n: _declared(cls, n, t, kw_only) for n, t in vars(cls).get("__annotations__", {}).items()}
    every = (*(f for n, f in inherited.items() if n not in own), *own.values())
    for name, value in {**methods, "__attrs_attrs__": every, "__arguments__": _Arguments(every)}.items():
        if name not in vars(cls):
            setattr(cls, name, value)
    return cls


def _declared(cls: type, name: str, type: str, kw_only: bool) -> Field:
    stated = vars(cls).get(name, REQUIRED)
    if not isinstance(stated, Field):
        return Field(stated, name=name, type=type, kw_only=kw_only)
    delattr(cls, name)
    return stated._replace(name=name, type=type, kw_only=stated.kw_only or kw_only)


class _Arguments:
    """The arguments of a class."""

    def __init__(self, every: tuple[Field, ...]) -> None:
        self.names = tuple(f.name for f in every if f.init and not f.kw_only)
        self.every = {f.name: None for f in every}.keys()
        self.defaults = {f.name: f.default for f in every if f.default is not REQUIRED}
        self.factories = {f.name: f.factory for f in every if f.factory is not None}
        self.converters = {f.name: f.converter for f in every if f.converter is not None}
        self.plain = all(f.init for f in every) and not self.converters
        """Whether the value of each field is that of its argument."""
        self.simple = len(self.names) if self.plain and len(self.names) == len(every) else -1
        """How many arguments by position are all that there are."""

    def complete(self, given: tuple[Any, ...], named: dict[str, Any]) -> dict[str, Any]:
        """Return the value of every field."""
        stated = dict(zip(self.names, given, strict=False)) | named
        every = self.defaults | stated
        for name, make in self.factories.items():
            if name not in every:
                every[name] = make()
        if every.keys() != self.every or len(stated) != len(given) + len(named):
            wrong = sorted(every.keys() ^ self.every)
            raise TypeError(f"wrong arguments: {', '.join(wrong) or 'too many'}")
        for name, convert in self.converters.items():
            every[name] = convert(every[name])
        return every


def _init(self: Any, *given: Any, **named: Any) -> None:
    arguments = self.__arguments__
    if len(given) == arguments.simple and not named:
        self.__dict__.update(zip(arguments.names, given, strict=True))
    else:
        self.__dict__.update(arguments.complete(given, named))


def _refuse(self: Any, name: str, *_: Any) -> None:
    raise AttributeError(f"{self.__class__.__name__} is frozen: `{name}` cannot be changed")


def _reduce(self: Any) -> tuple[Any, ...]:
    """Pickle the fields, and nothing that was computed of them."""
    return object.__new__, (self.__class__,), {f.name: self.__dict__[f.name] for f in fields(self.__class__)}


def _eq(self: Any, other: object) -> bool:
    if other.__class__ is not self.__class__:
        return NotImplemented
    read = _read(self.__class__)
    return read(self) == read(other)


def _hash(self: Any) -> int:
    return hash((self.__class__, _read(self.__class__)(self)))


def _kept_hash(self: Any) -> int:
    if "__hash__" not in self.__dict__:
        self.__dict__["__hash__"] = _hash(self)
    return self.__dict__["__hash__"]


def _repr(self: Any) -> str:
    shown = (f"{f.name}={getattr(self, f.name)!r}" for f in fields(self.__class__) if f.repr)
    return f"{self.__class__.__qualname__}({', '.join(shown)})"


_SHARED: dict[str, Any] = {"__init__": _init, "__reduce__": _reduce, "__eq__": _eq, "__repr__": _repr}
