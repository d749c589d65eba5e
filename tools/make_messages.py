"""Write every error that Megatron-Core, Megatron Bridge, megatron.training and Transformer Engine can raise or log.

usage: .venv/bin/python tools/make_messages.py [FILE]     moedsl/diagnose/messages.jsonl.gz
Reads the sources of the installed wheels, and of each older release that `moedsl targets add` has fetched, without
importing them. One line of JSON for each `raise`, `assert` and logged error, facts alone (moedsl/diagnose/messages.py
reads them):
{"package", "file", "function", "kind": the exception's class, "AssertionError" or "logged", "text": with `{name}` for a
value, "check": the relation that fails, in names, "names": what it reads, "lines": {release: [first, last]}}
"""

from __future__ import annotations

import ast
import gzip
import importlib.util
import io
import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from moedsl.bridge.verify import environments
from moedsl.facts.releases import NEWEST, RELEASES

FILE = Path(__file__).resolve().parents[1] / "moedsl" / "diagnose" / "messages.jsonl.gz"
ROOTS = {
    "core": "megatron/core", "training": "megatron/training", "bridge": "megatron/bridge", "te": "transformer_engine",
}  # fmt: skip
HOLDERS = ("self", "config", "args", "cfg", "model_config", "transformer_config", "model_cfg", "cls")
"""Objects whose name says nothing of the attribute that is read."""
LOGGED = ("error", "critical", "exception", "fatal")
LONGEST_CHECK = 160
"""The most characters of a relation; a longer one is told by its names."""
_PERCENT = re.compile(r"%(?:\((\w+)\))?[-+ #0-9.]*[a-zA-Z]")
_BRACES = re.compile(r"\{([\w.]*)[^{}]*\}")


def main() -> None:
    """Write the table, in an order that does not depend on the machine."""
    found: dict[tuple[str, ...], dict[str, Any]] = {}
    for release in RELEASES:
        if release is NEWEST:
            spec = importlib.util.find_spec("attrs")
            assert spec is not None and spec.origin is not None
            folder = Path(spec.origin).parents[1]
        elif (fetched := environments.made(release)) is not None:
            folder = fetched
        else:
            sys.exit(f"megatron-bridge {release.bridge} is not fetched: run `moedsl targets add {release.bridge}`")
        for package, root in ROOTS.items():
            for path in sorted((folder / root).rglob("*.py")):
                file = path.relative_to(folder / root).as_posix()
                if file.startswith("jax/"):
                    continue
                for row, lines in errors_of(path.read_text(encoding="utf-8")):
                    key = (package, file, *map(str, row.values()))
                    entry = found.setdefault(key, {"package": package, "file": file, **row, "lines": {}})
                    entry["lines"].setdefault(release.bridge, lines)
    text = "".join(f"{json.dumps(found[k], separators=(',', ':'))}\n" for k in sorted(found))
    packed = io.BytesIO()
    with gzip.GzipFile(fileobj=packed, mode="wb", mtime=0, filename="") as stream:
        stream.write(text.encode())
    (Path(sys.argv[1]) if len(sys.argv) > 1 else FILE).write_bytes(packed.getvalue())
    print(f"{len(found):,} errors, {len(text):,} bytes, {len(packed.getvalue()):,} packed")


def errors_of(source: str) -> Iterator[tuple[dict[str, Any], tuple[int, int]]]:
    """Each error of a file, with its first and last line: those of its condition too."""
    module = ast.parse(source)
    parents = {child: node for node in ast.walk(module) for child in ast.iter_child_nodes(node)}
    for node in ast.walk(module):
        if not isinstance(node, ast.Assert | ast.Raise | ast.Expr):
            continue
        above = list(_above(node, parents))
        scopes = [n for n in above if isinstance(n, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef)]
        function = ".".join(s.name for s in reversed(scopes))
        inner = next((s for s in scopes if not isinstance(s, ast.ClassDef)), module)
        if isinstance(node, ast.Assert):
            kind, said, relation, first = "AssertionError", node.msg, node.test, node.lineno
        elif isinstance(node, ast.Raise) and node.exc is not None:
            kind, said = _raised(node.exc)
            relation, first = _condition(node, above)
        elif isinstance(node, ast.Expr) and (logged := _logged(node.value)) is not None:
            kind, said = "logged", logged
            relation, first = _condition(node, above)
        else:
            continue
        if kind is None:
            continue
        check = _plain(ast.unparse(relation)) if relation is not None else ""
        names = _names(relation) if relation is not None else []
        for template in _texts(said, inner, module, node.lineno) or [""]:
            text = _plain_holes(template)
            read = dict.fromkeys([*names, *(n for n in re.findall(r"\{(\w+)\}", text))])
            row = {"function": function, "kind": kind, "text": text, "names": list(read)}
            row["check"] = check if len(check) <= LONGEST_CHECK else ""
            yield row, (first, node.end_lineno or node.lineno)


def _above(node: ast.AST, parents: dict[ast.AST, ast.AST]) -> Iterator[ast.AST]:
    while (node := parents.get(node)) is not None:  # type: ignore[assignment]
        yield node


def _raised(exc: ast.expr) -> tuple[str | None, ast.expr | None]:
    """The class of what is raised and its text; no class where a caught exception is raised again."""
    called = exc.func if isinstance(exc, ast.Call) else exc
    name = called.attr if isinstance(called, ast.Attribute) else called.id if isinstance(called, ast.Name) else ""
    if not name[:1].isupper():
        return None, None
    return name, exc.args[0] if isinstance(exc, ast.Call) and exc.args else None


def _logged(call: ast.expr) -> ast.expr | None:
    """The text of a call such as ``logger.error(text)``."""
    if not (isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute) and call.args):
        return None
    if any(isinstance(a, ast.Attribute) and a.attr in ("ERROR", "CRITICAL") for a in call.args):
        return call.args[-1]
    by = call.func.value
    is_logger = isinstance(by, ast.Name | ast.Attribute) and "log" in ast.unparse(by).lower()
    return call.args[0] if is_logger and call.func.attr in LOGGED else None


def _condition(node: ast.AST, above: list[ast.AST]) -> tuple[ast.expr | None, int]:
    """The condition right around a statement, negated in an `else`, and its line; none outside of an `if`."""
    child = node
    for n in above:
        if isinstance(n, ast.If):
            is_else = any(child is s for s in n.orelse)
            return (ast.UnaryOp(ast.Not(), n.test) if is_else else n.test), n.lineno
        if isinstance(n, ast.FunctionDef | ast.AsyncFunctionDef | ast.ExceptHandler | ast.For | ast.Module):
            break
        child = n
    return None, getattr(node, "lineno", 0)


def _texts(said: ast.expr | None, function: ast.AST, module: ast.Module, line: int) -> list[str]:
    """The texts that an expression may be, with `{...}` for values; a variable is what was last assigned to it."""
    if said is None:
        return []
    if isinstance(said, ast.IfExp):
        return [*_texts(said.body, function, module, line), *_texts(said.orelse, function, module, line)]
    if isinstance(said, ast.Name):
        for scope in (function, module):
            if grown := _assigned(said.id, scope, line if scope is function else sys.maxsize):
                return grown
        return []
    return [text] if (text := _text(said)) is not None else []


def _assigned(name: str, scope: ast.AST, before: int) -> list[str]:
    """The texts of a variable: each assignment begins one, and `+=` makes it longer."""
    out: list[str] = []
    for n in sorted((n for n in ast.walk(scope) if isinstance(n, ast.Assign | ast.AugAssign)), key=lambda n: n.lineno):
        targets = n.targets if isinstance(n, ast.Assign) else [n.target]
        if n.lineno >= before or not any(isinstance(t, ast.Name) and t.id == name for t in targets):
            continue
        text = _text(n.value)
        if text is None:
            continue
        if isinstance(n, ast.AugAssign) and out:
            out[-1] += text
        else:
            out.append(text)
    return out


def _text(e: ast.expr) -> str | None:
    """A text with `{name}` for each value in it, literal braces doubled; None for what is no text."""
    if isinstance(e, ast.Constant):
        return e.value.replace("{", "{{").replace("}", "}}") if isinstance(e.value, str) else None
    if isinstance(e, ast.JoinedStr):
        parts = [_text(v) if isinstance(v, ast.Constant) else f"{{{_last_name(v.value)}}}" for v in e.values]  # type: ignore[union-attr]
        return "".join(p or "" for p in parts)
    if isinstance(e, ast.BinOp) and isinstance(e.op, ast.Add):
        sides = _text(e.left), _text(e.right)
        return None if sides == (None, None) else "".join("{}" if s is None else s for s in sides)
    if isinstance(e, ast.BinOp) and isinstance(e.op, ast.Mod) and (text := _text(e.left)) is not None:
        return _PERCENT.sub(lambda m: f"{{{m[1] or ''}}}", text)
    if isinstance(e, ast.Call) and isinstance(e.func, ast.Attribute):
        if e.func.attr == "format" and isinstance(e.func.value, ast.Constant) and isinstance(e.func.value.value, str):
            return _BRACES.sub(lambda m: f"{{{m[1].rpartition('.')[2]}}}", e.func.value.value)
        if e.func.attr == "join" and e.args and isinstance(e.args[0], ast.List | ast.Tuple):
            between = _text(e.func.value) or ""
            return between.join(_text(p) or "{}" for p in e.args[0].elts)
    return None


def _last_name(e: ast.expr) -> str:
    """The name that a value goes by: the attribute, the variable, or the text key."""
    if isinstance(e, ast.Attribute):
        return e.attr
    if isinstance(e, ast.Name):
        return e.id
    if isinstance(e, ast.Subscript) and isinstance(e.slice, ast.Constant) and isinstance(e.slice.value, str):
        return e.slice.value if e.slice.value.isidentifier() else ""
    return ""


def _plain_holes(text: str) -> str:
    """A text in one line, as a log is searched for it."""
    return re.sub(r"\s+", " ", text).strip()


def _plain(relation: str) -> str:
    """A relation without the objects that hold its values."""
    return re.sub(rf"\b(?:(?:{'|'.join(HOLDERS)})\.)+", "", relation)


def _names(relation: ast.expr) -> list[str]:
    """The values that a relation reads: its attributes and variables, without functions and objects that hold them."""
    called = {id(n.func) for n in ast.walk(relation) if isinstance(n, ast.Call)}
    held = {id(n.value) for n in ast.walk(relation) if isinstance(n, ast.Attribute)}
    found = (
        n.attr if isinstance(n, ast.Attribute) else n.id
        for n in ast.walk(relation)
        if isinstance(n, ast.Attribute | ast.Name) and id(n) not in called and id(n) not in held
    )  # fmt: skip
    return list(dict.fromkeys(n for n in found if n not in HOLDERS and not n.isupper()))


if __name__ == "__main__":
    main()
