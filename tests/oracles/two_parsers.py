"""The same text through both parsers: moedsl's own, and the tree-sitter grammar of editors/tree-sitter.

A node of tree-sitter has the kind of the grammar rule that moedsl/lang/tree_builder.py has a builder for, so the builders make the
same tree of both, spans included.
"""

import ctypes
import hashlib
import os
import subprocess
from functools import cache
from pathlib import Path
from typing import Any

from attrs import evolve, fields, has
from lark import Token
from tree_sitter import Language, Node, Parser, Query

from moedsl.lang import ast, parser
from moedsl.lang.tokens import brackets
from moedsl.lang.tree_builder import RULES, Builder
from moedsl.support.source import Source, Span
from tests.helpers.paths import ROOT

SOURCES = ROOT / "editors" / "tree-sitter" / "src"


@cache
def compiled() -> Path:
    """The committed parser as a shared library, compiled with gcc into the cache under the hash of its sources."""
    files = [SOURCES / "parser.c", SOURCES / "scanner.c"]
    key = hashlib.sha256(b"".join(path.read_bytes() for path in files)).hexdigest()[:16]
    cache_home = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    library = cache_home / "moedsl" / "tree-sitter" / f"{key}.so"
    if not library.exists():
        library.parent.mkdir(parents=True, exist_ok=True)
        made = library.with_suffix(f".{os.getpid()}")
        command = ["gcc", "-shared", "-fPIC", "-O1", "-Wall", "-Wextra", "-Wno-unused-parameter"]
        subprocess.run([*command, f"-I{SOURCES}", *map(str, files), "-o", str(made)], check=True)
        made.replace(library)
    return library


@cache
def tree_sitter_parser() -> Parser:
    """The committed parser in Python."""
    library = compiled()
    language = ctypes.CDLL(str(library)).tree_sitter_moe
    language.restype = ctypes.c_void_p
    capsule = ctypes.pythonapi.PyCapsule_New
    capsule.restype, capsule.argtypes = ctypes.py_object, [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]
    return Parser(Language(capsule(language(), b"tree_sitter.Language", None)))


def query(path: Path) -> Query:
    """The queries of a file. They are never freed: tree-sitter 0.26.1 for Python frees their predicates twice."""
    found = Query(tree_sitter_parser().language, path.read_text(encoding="utf-8"))  # type: ignore[arg-type]
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(found))
    return found


def by_tree_sitter(text: str) -> Any:
    """The module that tree-sitter's tree stands for, or None where it has an error in it."""
    root = tree_sitter_parser().parse(text.encode("utf-8")).root_node
    if root.has_error:
        return None
    module = _Convert(text).node(root)
    return evolve(module, span=Span("t.moe", 0, len(text)))


class _Convert:
    """Nodes to what the builders make of them; offsets from bytes to code points."""

    def __init__(self, text: str) -> None:
        self.text, self.builder = text, Builder()
        self.builder.start("t.moe")
        self.bytes = text.encode("utf-8")
        self.plain = len(self.bytes) == len(text)

    def node(self, node: Node) -> Any:
        if not node.is_named or not node.children:
            word = self.word(node)
            return RULES[node.type](self.builder, [word]) if node.is_named and node.type in RULES else word
        children = [self.node(child) for child in node.children if child.type not in ("comment", ";")]
        return RULES[node.type](self.builder, children)

    def word(self, node: Node) -> Any:
        start, end = self.offset(node.start_byte), self.offset(node.end_byte)
        return Token("WORD", self.text[start:end], start, end_pos=end)

    def offset(self, at: int) -> int:
        return at if self.plain else len(self.bytes[:at].decode("utf-8"))


def by_lark(text: str) -> Any:
    """The module that moedsl's parser makes, or None where a statement does not parse.

    Numbers and strings that are words of the language but have no value (`12q8`) are an error of a later stage here.
    """
    source = Source("t.moe", text)
    with parser._lock:
        parser.builder.start(source.name)
        parsing = parser._Parse(source, brackets(text))
        module, _ = parsing.run()
    return None if parsing.errors else module


def described(node: Any) -> Any:
    """A tree as nested tuples with its spans, which do not compare otherwise."""
    if isinstance(node, tuple):
        return tuple(described(item) for item in node)
    if not has(type(node)) or isinstance(node, Span):
        return node
    values = tuple((f.name, described(getattr(node, f.name))) for f in fields(type(node)))
    return type(node).__name__, values


def disagreement(text: str) -> str:
    """What the two parsers make of a text where it is not the same, or nothing."""
    lark, tree_sitter = by_lark(text), by_tree_sitter(text)
    if (lark is None) != (tree_sitter is None):
        return f"Lark {'refuses' if lark is None else 'takes'} what tree-sitter does not: {text!r}"
    if lark is not None and described(lark) != described(tree_sitter):
        return f"{text!r}:\n{described(lark)}\n{described(tree_sitter)}"
    return ""


__all__ = ["ast", "by_lark", "by_tree_sitter", "described", "disagreement", "query", "tree_sitter_parser"]
