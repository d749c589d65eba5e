"""Read the fields of the real ConfigContainer and their types, to check `set` without Bridge."""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Mapping
from functools import cache, lru_cache
from pathlib import Path
from typing import Any

from moedsl.schema.frozen import frozen

DATA = Path(__file__).resolve().parent
LATEST = "0.6.2"


@frozen
class Field:
    """One field of a section. A section that several classes may fill has all their fields; `classes` is empty then."""

    path: str
    type: str
    default: Any
    """JSON; "required" and "factory" if there is no plain default."""
    classes: tuple[str, ...]


@cache
def versions() -> tuple[str, ...]:
    """The Bridge versions whose fields are known."""
    return tuple(sorted(f.stem.removeprefix("bridge_fields_") for f in DATA.glob("bridge_fields_*.json")))


@lru_cache(maxsize=4)
def sections(version: str = LATEST) -> Mapping[str, Mapping[str, Any]]:
    """The fields of each section by name, as in the data; raises FileNotFoundError like `fields`."""
    return json.loads((DATA / f"bridge_fields_{version}.json").read_text(encoding="utf-8"))["sections"]


@lru_cache(maxsize=4)
def fields(version: str = LATEST) -> Mapping[str, Field]:
    """The field of each dotted path of that Bridge version; FileNotFoundError for a version not in `versions()`."""
    return {
        f"{section}.{name}": Field(f"{section}.{name}", f["type"], f["default"], tuple(f.get("in", ())))
        for section, members in sections(version).items()
        for name, f in members.items()
    }


def field_names(version: str = LATEST) -> list[str]:
    """Every dotted path, sorted, for suggestions."""
    return sorted(fields(version))


def lookup(path: str, version: str = LATEST) -> Field | None:
    """The field at a dotted path such as ``model.moe_router_dtype``, or None."""
    return fields(version).get(path)


def unknown_word(path: str, value: Any, version: str = LATEST) -> str | None:
    """What a field takes, in words, where its annotation lists the values and this is none of them."""
    field = lookup(path, version)
    listed = field is not None and "Literal[" in field.type and value is not None
    return refused(field.type, value) if field and listed else None


_SPLIT = re.compile(r"^(?:Optional|Union)\[(.*)\]$")
_NONE = ("None", "NoneType")
WORDS = {"bool": "true or false", "int": "a whole number", "float": "a number", "str": "a text", "list": "a list"}
EXAMPLES = dict(zip(WORDS.values(), ("true", "100", "3e-4", '"text"', "[1, 2]"), strict=True))
_LISTS = ("list", "List", "tuple", "Tuple", "set")


def refused(type: str, value: Any) -> str | None:
    """Describe the values of a field's type if it does not accept a value; None if it may."""
    kinds = alternatives(type)
    if any(_takes(k, value) for k in kinds):
        return None
    said = dict.fromkeys(w for k in kinds for w in _words(k))
    return " or ".join(said)


def alternatives(type: str) -> list[str]:
    """The alternatives of a type: the parts of an Optional or a Union."""
    found = _SPLIT.match(type)
    if found is None:
        parts = _parts(type, "|")
        return [type] if len(parts) == 1 else [a for p in parts for a in alternatives(p)]
    inner = [a for p in _parts(found[1], ",") for a in alternatives(p)]
    return [*inner, "None"] if type.startswith("Optional") else inner


def _parts(text: str, separator: str) -> list[str]:
    """Split a text outside all brackets."""
    out, depth = [""], 0
    for char in text:
        depth += (char == "[") - (char == "]")
        if char == separator and not depth:
            out.append("")
        else:
            out[-1] += char
    return [p.strip() for p in out]


def _takes(kind: str, value: Any) -> bool:
    if kind in _NONE:
        return value is None
    if kind.startswith("Literal["):
        return value in _literals(kind)
    if kind.split("[")[0] in _LISTS:
        return isinstance(value, list)
    if kind not in WORDS:
        return True
    if kind == "float":
        return isinstance(value, int | float) and not isinstance(value, bool)
    if kind == "int":
        return isinstance(value, int | float) and not isinstance(value, bool) and value == int(value)
    return isinstance(value, {"bool": bool, "str": str}.get(kind, list))


def _words(kind: str) -> tuple[str, ...]:
    if kind in _NONE:
        return ("none",)
    if kind.startswith("Literal["):
        return tuple(f'"{v}"' if isinstance(v, str) else str(v) for v in _literals(kind))
    return (WORDS["list"],) if kind.split("[")[0] in _LISTS else (WORDS.get(kind, kind),)


def _literals(kind: str) -> list[Any]:
    return list(ast.literal_eval(kind.removeprefix("Literal")))


def example(path: str, takes: str) -> str:
    """Write an example of `set` with a value of the first kind that `refused` describes."""
    first = next((e for w, e in EXAMPLES.items() if takes.startswith(w)), takes.split(" or ")[0])
    return f"set {path} = {first}"
