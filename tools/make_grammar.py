"""Write grammar/tables.json: the LALR tables that Lark makes of grammar/moe.lark, which moedsl parses with.

usage: .venv/bin/python tools/make_grammar.py
"""

from __future__ import annotations

import json
from collections import deque
from typing import Any

from lark import Lark

from moedsl.support.resources import data_dir, grammar_file


def main() -> None:
    data_dir("grammar").joinpath("tables.json").write_text(made(), encoding="utf-8")


def made() -> str:
    """The tables as JSON, a line for each part; states are numbered as a walk from the first one finds them."""
    grammar = grammar_file().read_text(encoding="utf-8")
    parser = Lark(grammar, parser="lalr", start="module", keep_all_tokens=True, maybe_placeholders=False)
    cursor: Any = parser.parse_interactive("")
    table, lexer = cursor.parser_state.parse_conf, cursor.lexer_thread.lexer.root_lexer
    rules = sorted(parser.rules, key=_rule)
    number = {rule: -1 - at for at, rule in enumerate(rules)}
    order = _walk(table.states, table.start_state)
    parts = {
        "terminals": [[t.name, t.pattern.to_regexp()] for t in lexer.terminals],
        "ignored": sorted(parser.lexer_conf.ignore),
        "rules": [_rule(rule) for rule in rules],
        "rows": [
            {name: order[to] if isinstance(to, int) else number[to] for name, (_, to) in sorted(row.items())}
            for row in (table.states[state] or {"$END": (None, state)} for state in order)
        ],
    }
    return "{\n" + ",\n".join(f"{json.dumps(name)}: {_lines(part)}" for name, part in parts.items()) + "\n}\n"


def _walk(states: dict[int, dict[str, tuple[Any, Any]]], start: int) -> dict[int, int]:
    """The new number of each state."""
    order, ahead = {start: 0}, deque([start])
    while ahead:
        for _, (_, to) in sorted(states[ahead.popleft()].items()):
            if isinstance(to, int) and to not in order:
                order[to] = len(order)
                ahead.append(to)
    return order


def _rule(rule: Any) -> list[Any]:
    """The name of a rule, and its symbols."""
    return [rule.origin.name, *(symbol.name for symbol in rule.expansion)]


def _lines(part: list[Any]) -> str:
    return "[\n" + ",\n".join(json.dumps(each, separators=(",", ":")) for each in part) + "\n]"


if __name__ == "__main__":
    main()
