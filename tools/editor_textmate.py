"""Write the TextMate grammar: the contexts of moedsl/lang/pygments_lexer.py, in the scopes that colour themes know.

TextMate reads line by line, so a statement starts at the start of a line outside brackets, or after ``;`` or ``{``.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

from moedsl.lang.keywords import keywords

W = keywords()
NAME = r"[A-Za-z_][A-Za-z0-9_]*(?:\.[A-Za-z0-9_]+)*"
WORD = r"[A-Za-z0-9_]+(?:\.[A-Za-z0-9_]+)*"
HUB = r"[A-Za-z0-9_][\w.-]*/\w(?:[\w.-]*\w)?"
END = r"(?![\w.])"
BLANKS = r"[ \t]+"
STARTS = r"(?:^|(?<=[;{]))[ \t]*"
UNITS = "|".join(re.escape(unit) for unit in W.units if unit != "%")
NUMBER = (
    rf"[0-9]+(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?[kMG]?([ \t]*(?:{UNITS}){END}|%(?![\w(\"\[])"
    rf"|[ \t]+%(?=[ \t]*(?:$|[#;}}\]),]|(?:{'|'.join(W.clauses)}){END})))"
    r"|[0-9][A-Za-z0-9_.]*(?:(?<=[eE])[+-][0-9]+)?"
)
STATEMENT, DECLARATION, MEMBER = "keyword.control.statement", "storage.type.declaration", "keyword.control.member"
LINK, DECLARED, BRACE = "keyword.other.link", "entity.name.type.declared", "punctuation.section.block"


def either(items: Iterable[str]) -> str:
    """Match whole words, the longest first."""
    return rf"({'|'.join(re.escape(w) for w in sorted(items, key=lambda s: (-len(s), s)))}){END}"


def match(pattern: str, *scopes: str) -> dict[str, Any]:
    """Build a pattern whose groups have these scopes. A scope that starts with # is a rule of the grammar."""
    return {"match": pattern, "captures": captures(scopes)}


def captures(scopes: Iterable[str]) -> dict[str, Any]:
    """Number the groups from 1."""
    return {str(i): _capture(scope) for i, scope in enumerate(scopes, 1)}


def _capture(scope: str) -> dict[str, Any]:
    return {"patterns": [{"include": scope}]} if scope.startswith("#") else {"name": f"{scope}.moe"}


def word(pattern: str, scope: str) -> dict[str, Any]:
    """Build a pattern that has one scope as a whole."""
    return {"match": pattern, "name": f"{scope}.moe"}


def region(begin: str, scopes: Iterable[str], end: str, inside: Iterable[str], closing: str = "") -> dict[str, Any]:
    """Build a range from one pattern to another, with the rules that apply in between."""
    out = {"begin": begin, "beginCaptures": captures(scopes), "end": end}
    if closing:
        out["endCaptures"] = {"0": {"name": f"{closing}.moe"}}
    return out | {"patterns": includes(*inside)}


def includes(*names: str) -> list[dict[str, Any]]:
    return [{"include": f"#{name}"} for name in names]


def grammar() -> dict[str, Any]:
    """What editors/vscode/syntaxes/moe.tmLanguage.json holds."""
    return {
        "information_for_contributors": "Generated from grammar/moe.lark by tools/make_editors.py.",
        "name": "moe",
        "scopeName": "source.moe",
        "fileTypes": ["moe"],
        "patterns": includes("comment", "clause", "phase", "declaration", "statement", "expression"),
        "repository": _lexical() | _names() | _blocks() | _statements(),
    }


def _lexical() -> dict[str, Any]:
    symbols = "|".join(re.escape(s) for s in W.symbols if s not in "()[]{},:;")
    string = {
        "name": "string.quoted.double.moe",
        "begin": '"',
        "end": '"|$',
        "patterns": [word(r"\\.", "constant.character.escape")],
    }
    return {
        "comment": word("#.*$", "comment.line.number-sign"),
        "clause": {
            "patterns": [
                match(rf"(since|until){BLANKS}({WORD})", "keyword.other.clause", "constant.numeric"),
                word(either(W.clauses), "keyword.other.clause"),
            ]
        },
        "string": string,
        "number": {"match": NUMBER, "name": "constant.numeric.moe", "captures": captures(["keyword.other.unit"])},
        "symbol": {"patterns": [word(symbols, "keyword.operator"), word("[:,;]", "punctuation.separator")]},
        "brackets": region(
            r"([(\[])",
            ["punctuation.section.brackets"],
            r"[)\]]",
            ["comment", "expression"],
            "punctuation.section.brackets",
        ),
    }


def _names() -> dict[str, Any]:
    functions = rf"({'|'.join(W.functions)})(?=[ \t]*\()"
    name = [
        word(either(W.axes), "variable.language.axis"),
        word(either(W.values), "support.constant.value"),
        word(NAME, "variable.other"),
        word(WORD, "variable.other"),
    ]
    words_of_expressions = [
        word(either(W.operators), "keyword.operator.word"),
        word(either(W.constants), "constant.language"),
    ]
    call = word(functions, "support.function")
    rest = includes("clause", "number", "string", "brackets")
    return {
        "name": {"patterns": name},
        "expression": {"patterns": [*rest, *words_of_expressions, call, *includes("name", "symbol")]},
    }


def _blocks() -> dict[str, Any]:
    facts, rules, runs = (either(group) for group in (W.facts_blocks, W.rules_blocks, W.run_blocks))
    starts = rf"^(?=[ \t]*{either(W.declarations)})"
    behind = rf"(?<=\}})|{starts}"

    def block(*inside: str) -> dict[str, Any]:
        return region(r"(\{)", [BRACE], r"\}", ["comment", "clause", *inside, "expression"], BRACE)

    return {
        "declaration": {
            "patterns": [
                region(rf"{STARTS}{facts}{BLANKS}({NAME})(?=[ \t]*\{{)", [DECLARATION, DECLARED], behind, ["facts"]),
                region(
                    rf"{STARTS}{rules}{BLANKS}({NAME})(?:{BLANKS}(of){BLANKS}({NAME}))?",
                    [DECLARATION, DECLARED, LINK, "#name"], behind, ["comment", "members", "expression"],
                ),
                region(
                    rf"{STARTS}{runs}{BLANKS}({NAME})(?:{BLANKS}(from){BLANKS}({NAME}))?",
                    [DECLARATION, DECLARED, LINK, "#name"], behind, ["comment", "body"],
                ),
                match(f"{STARTS}{either(w for w in W.declarations if w not in W.statements)}", DECLARATION),
            ]
        },
        "facts": block("facts"),
        "members": block("member"),
        "body": block("phase", "statement"),
        "member": match(f"{STARTS}{either(W.members)}", MEMBER),
    }  # fmt: skip


def _statements() -> dict[str, Any]:
    hardware = rf"{STARTS}(?:(hardware){BLANKS})?({NAME}){BLANKS}(x)(?![\w.])"
    options = region(rf"{STARTS}(vlm){END}", [STATEMENT], r"$|(?=[;}#])", ["name"])
    return {
        "phase": match(rf"{STARTS}(profile){BLANKS}(first){END}(?![ \t]*\{{)", STATEMENT, LINK),
        "statement": {
            "patterns": [
                options,
                match(hardware, STATEMENT, "#name", LINK),
                match(rf"{STARTS}(?:(model){BLANKS})?({HUB})(?=[ \t]*(?:$|[#;}}]))", STATEMENT, "variable.other"),
                match(rf"{STARTS}(target){BLANKS}({NAME}){BLANKS}({WORD})", STATEMENT, "#name", "constant.numeric"),
                match(f"{STARTS}{either(W.statements)}", STATEMENT),
                match(rf"{STARTS}({NAME}){BLANKS}(first){END}", "#name", LINK),
            ]
        },
    }
