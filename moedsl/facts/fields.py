"""Read the fields of the real ConfigContainer and their types, to check `set` without Bridge."""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

from attrs import frozen

from moedsl.facts import differences
from moedsl.facts.releases import NEWEST, RELEASES

DATA = Path(__file__).resolve().parent
LATEST = NEWEST.bridge


@frozen
class Field:
    """One field of a section. A section that several classes may fill has all their fields; `classes` is empty then."""

    path: str
    type: str
    default: Any
    """JSON; "required" and "factory" if there is no plain default."""
    classes: tuple[str, ...]
    others: Mapping[str, Any]
    """The default in each class where it differs."""


def versions() -> tuple[str, ...]:
    """The Bridge versions whose fields are known, from the oldest."""
    return tuple(r.bridge for r in RELEASES)


@cache
def data(version: str = LATEST) -> Mapping[str, Any]:
    """The data of that Bridge version (tools/bridge_fields.py); FileNotFoundError for one not in `versions()`."""
    found = json.loads((DATA / f"bridge_fields_{version}.json").read_text(encoding="utf-8"))
    return found if version == LATEST else differences.applied(found, data())


def sections(version: str = LATEST) -> Mapping[str, Mapping[str, Any]]:
    """The fields of each section by name, as in the data."""
    return data(version)["sections"]


def absent(version: str = LATEST) -> Mapping[str, str | None]:
    """The sections that are None by default, with the module and the class to build each; None for an abstract one."""
    return data(version)["absent"]


def overwritten(version: str = LATEST) -> Mapping[str, str]:
    """The fields whose value Bridge replaces by another field's, with that field."""
    return data(version)["overwritten"]


def provided(hf: str, version: str = LATEST) -> Mapping[str, Any]:
    """The fields of the model's section whose default AutoBridge replaces, with its values; "unknown" for a model that
    is not in the stdlib."""
    of = data(version)["provided"]
    return of[hf] if hf in of else dict.fromkeys((name for found in of.values() for name in found), "unknown")


def has(path: str, version: str = LATEST) -> bool:
    """Whether that Bridge version has the field; an environment variable and a whole section are no fields."""
    return "." not in path or path.startswith("env_vars.") or path in absent(version) or path in fields(version)


def first_with(path: str) -> str | None:
    """The oldest known version that has the field; None if none has."""
    return next((v for v in versions() if has(path, v)), None)


@frozen
class Words:
    """The names of an enumeration, or of torch's dtypes, and the module that has them."""

    type: str
    module: str
    names: tuple[str, ...]

    def written(self) -> tuple[str, ...]:
        """The values in a run file: a dtype is written as ``torch.bfloat16``."""
        return tuple(f"torch.{n}" for n in self.names) if self.type == "dtype" else self.names


def words_of(type: str, version: str = LATEST) -> Words | None:
    """The names that a type takes besides None; None for a type of other values."""
    kinds = [k for k in alternatives(type) if k not in _NONE]
    known = data(version)["words"].get(kinds[0]) if len(kinds) == 1 else None
    return Words(kinds[0], known["module"], tuple(known["names"])) if known else None


@cache
def fields(version: str = LATEST) -> Mapping[str, Field]:
    """The field of each dotted path of that Bridge version; FileNotFoundError for a version not in `versions()`."""
    return {
        f"{section}.{name}": Field(
            f"{section}.{name}", f["type"], f["default"], tuple(f.get("in", ())), f.get("others", {})
        )
        for section, members in sections(version).items()
        for name, f in members.items()
    }


def field_names() -> list[str]:
    """Every dotted path of the newest version, sorted."""
    return sorted(fields(LATEST))


def called(name: str) -> list[str]:
    """The fields whose last part is a name, without those of `train` that Bridge replaces by `validation` (bridge
    training/config.py:1517)."""
    found = [p for p in field_names() if p.rpartition(".")[2] == name]
    return [p for p in found if not (p.startswith("train.") and f"validation.{name}" in found)]


def path_of(word: str) -> str:
    """Write the name of a `derive` rule as a field of Bridge; a name without a section is in `model`."""
    return word if "." in word else f"model.{word}"


def lookup(path: str, version: str = LATEST) -> Field | None:
    """The field at a dotted path such as ``model.moe_router_dtype``, or None."""
    return fields(version).get(path)


def unknown_word(path: str, value: Any) -> str | None:
    """What a field takes, in words, where its annotation lists the values and this is none of them."""
    field = lookup(path)
    listed = field is not None and "Literal[" in field.type and value is not None
    return refused(field.type, value) if field and listed else None


_SPLIT = re.compile(r"^(?:Optional|Union)\[(.*)\]$")
_LIST = re.compile(r"^(list|List|tuple|Tuple|set)(?:\[(.*)\])?$")
_NONE = ("None", "NoneType")
WORDS = {"bool": "true or false", "int": "a whole number", "float": "a number", "str": "a text", "list": "a list"}
EXAMPLES: dict[str, str] = dict(zip(WORDS.values(), ("true", "100", "3e-4", '"text"', "[1, 2]"), strict=True)) | {
    "a dtype": '"torch.bfloat16"'
}
_TEXTS = ("str", "Path")


def refused(type: str, value: Any) -> str | None:
    """Describe the values of a field's type if it does not accept a value; None if it does."""
    if any(_takes(k, value) for k in alternatives(type)):
        return None
    return " or ".join(dict.fromkeys(w for k in alternatives(type) for w in _words(k)))


def is_writable(type: str) -> bool:
    """Whether a run file can write a value of a type other than None, which a function or an object is not."""
    return any(_kind(k) for k in alternatives(type) if k not in _NONE)


def held(type: str, value: Any) -> Any:
    """The value as the field holds it: 1e3 is a whole number in a field of whole numbers."""
    whole = isinstance(value, float) and "float" not in alternatives(type) and "int" in alternatives(type)
    return int(value) if whole else value


def choices(type: str) -> tuple[Any, ...]:
    """The values of a type that lists them: true and false, the words of a Literal or an enumeration, and None."""
    return tuple(v for k in alternatives(type) for v in _listed(k))


def _listed(kind: str) -> tuple[Any, ...]:
    if kind in _NONE:
        return (None,)
    if kind == "bool":
        return (True, False)
    if kind.startswith("Literal["):
        return tuple(_literals(kind))
    words = words_of(kind)
    return words.written() if words else ()


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


def _kind(kind: str) -> str | None:
    """What a run file writes for an alternative: none, words, a list, or a key of `WORDS`; None for an object."""
    if kind in _NONE:
        return "none"
    if kind.startswith("Literal[") or words_of(kind):
        return "words"
    if kind in _TEXTS:
        return "str"
    return "list" if _LIST.match(kind) else kind if kind in WORDS else None


def _takes(kind: str, value: Any) -> bool:
    match _kind(kind):
        case "none":
            return value is None
        case "words":
            listed = (v for v in _listed(kind) if type(v) is type(value))
            return value in listed
        case "list":
            return isinstance(value, list) and _holds(kind, value)
        case "bool":
            return isinstance(value, bool)
        case "str":
            return isinstance(value, str)
        case "int" | "float" as number:
            plain = isinstance(value, int | float) and not isinstance(value, bool)
            return plain and (number == "float" or value == int(value))
        case _:
            return False


def _holds(kind: str, items: list[Any]) -> bool:
    """Whether a list or a tuple takes these items."""
    found = _LIST.match(kind)
    inside = _parts(found[2], ",") if found and found[2] else []
    if not inside or inside[0] == "Any":
        return True
    if found and found[1].lower() == "tuple" and inside[-1] != "...":
        return len(items) == len(inside) and all(not refused(t, v) for t, v in zip(inside, items, strict=True))
    return all(refused(inside[0], v) is None for v in items)


def _words(kind: str) -> tuple[str, ...]:
    """The words for the values of an alternative; none for an object."""
    match _kind(kind):
        case "words" if kind == "dtype":
            return ('a dtype as "torch.bfloat16"',)
        case "words":
            return tuple(f'"{v}"' if isinstance(v, str) else str(v) for v in _listed(kind))
        case "list":
            return (WORDS["list"] if kind in ("list", "set") else f"{WORDS['list']} ({kind})",)
        case None:
            return ()
        case other:
            return (WORDS.get(other, other),)


def _literals(kind: str) -> list[Any]:
    return list(ast.literal_eval(kind.removeprefix("Literal")))


def example(path: str, takes: str) -> str:
    """Write an example of `set` with a value of the first kind that `refused` describes."""
    first = next((e for w, e in EXAMPLES.items() if takes.startswith(w)), takes.split(" or ")[0])
    return f"set {path} = {first}"
