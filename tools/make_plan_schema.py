"""Write moedsl/planner/plan.schema.json, the JSON Schema of plan.json, from the classes of a plan.

Run it after a change of the records of moedsl/planner/; tests/planner/test_schema.py fails if the file is stale.
"""

from __future__ import annotations

import ast
import inspect
import json
import textwrap
from collections.abc import Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from types import UnionType
from typing import Any, Union, get_args, get_origin

import attrs

from moedsl.facts import axes
from moedsl.planner.plan import Plan
from moedsl.support.json_form import Absent, JsonForm, key, type_hints

FILE = Path(__file__).resolve().parent.parent / "moedsl" / "planner" / "plan.schema.json"
_PLAIN = {str: "string", int: "integer", float: "number", bool: "boolean", type(None): "null"}


def schema() -> dict[str, Any]:
    """Describe plan.json; each class of a plan is a definition."""
    definitions: dict[str, Any] = {}
    _define(Plan, definitions)
    whole = definitions.pop("Plan")
    written = {"type": "string", "description": "Hash by which moedsl knows a file that it wrote."}
    whole["properties"] = {"moedsl_sha256": written, **whole["properties"]}
    head = {"$schema": "https://json-schema.org/draft/2020-12/schema", "title": "moedsl plan"}
    return {**head, **whole, "$defs": dict(sorted(definitions.items()))}


def _define(cls: type[JsonForm], definitions: dict[str, Any]) -> None:
    if cls.__name__ in definitions:
        return
    definitions[cls.__name__] = {}
    hints, docs = type_hints(cls), _docs(cls)
    properties, required = dict[str, Any](), list[str]()
    for f in attrs.fields(cls):
        made = _type(hints[f.name], definitions, null=f.default is not None)
        doc = docs.get(f.name) or (axes.BY_NAME[f.name].doc if f.name in axes.BY_NAME else None)
        properties[key(f)] = {**made, "description": doc} if doc else made
        required += [key(f)] if f.default is attrs.NOTHING else []
    definitions[cls.__name__] = {
        "description": " ".join((cls.__doc__ or "").split()),
        "type": "object",
        "properties": properties,
        "required": required,
        "additionalProperties": False,
    }


def _type(hint: Any, definitions: dict[str, Any], null: bool = True) -> dict[str, Any]:
    """Describe the values of an annotation; without `null`, None means that the key is absent."""
    origin, args = get_origin(hint), get_args(hint)
    if origin in (Union, UnionType):
        kinds = [a for a in args if a is not Absent and (null or a is not type(None))]
        each = [_type(a, definitions) for a in kinds]
        return each[0] if len(each) == 1 else {"anyOf": each}
    if isinstance(hint, type) and issubclass(hint, JsonForm):
        _define(hint, definitions)
        return {"$ref": f"#/$defs/{hint.__name__}"}
    if origin in (tuple, Sequence):
        return {"type": "array", "items": _type(args[0], definitions)}
    if origin is Mapping:
        return {"type": "object", "additionalProperties": _type(args[1], definitions)}
    return {"type": _PLAIN[hint]} if hint in _PLAIN else {}


def _docs(cls: type[JsonForm]) -> dict[str, str]:
    """Read the docstrings below the fields of a class and of those that it inherits."""
    sources = [inspect.getsource(c) for c in cls.__mro__ if issubclass(c, JsonForm) and c is not JsonForm]
    bodies = [
        tree.body for tree in ast.parse("".join(map(textwrap.dedent, sources))).body if isinstance(tree, ast.ClassDef)
    ]
    pairs = [pair for body in bodies for pair in pairwise(body)]
    return {
        field.target.id: " ".join(doc.value.value.split())
        for field, doc in pairs
        if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name)
        if isinstance(doc, ast.Expr) and isinstance(doc.value, ast.Constant) and isinstance(doc.value.value, str)
    }


def text() -> str:
    """Return the file's text."""
    return json.dumps(schema(), indent=2, ensure_ascii=False) + "\n"


if __name__ == "__main__":
    FILE.write_text(text(), encoding="utf-8")
