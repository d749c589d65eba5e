"""Serve assistants over the Model Context Protocol: each tool answers with the text of the command of its name.

A tool reads what its caller may read. None runs code of others, such as a recipe, unless `recipes` allows it.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from mcp.server import MCPServer
from mcp.server.mcpserver.exceptions import ToolError

from moedsl.cli.asking import ask
from moedsl.cli.reference import page
from moedsl.compiler import load_stdlib
from moedsl.support.diagnostics import to_json
from moedsl.support.limits import stopped_after
from moedsl.support.render import render_all
from moedsl.support.text import visible

SECONDS = 120.0
"""What the search of one call may take of a core."""
PATH = re.compile(r"[^\n;#]+\.moe")
"""A program that is a path."""
INSTRUCTIONS = """Plan the training of mixture-of-experts models with NVIDIA Megatron Bridge. A program is text such as
`qwen3_30b_a3b; h100 x 16; seq 8k; fit first`, or the path of a .moe file. Start with `plan`. If it says that wishes
collide, it names the change that opens a layout. Ask `explain` for the reason of a value, `what_if` for other machines,
`verify` before a cluster is booked, and `diagnose` with the log of a run that failed. All figures are estimates with
intervals: quote the interval too."""


def server(version: str, recipes: bool = False) -> MCPServer:
    """Return the server with its tools; `recipes` adds one that runs a recipe of the caller's."""
    made = MCPServer("moedsl", instructions=INSTRUCTIONS, version=version, log_level="WARNING")
    for tool in (check, plan, explain, what_if, verify, diagnose, *([verify_recipe] if recipes else [])):
        made.add_tool(tool, structured_output=False)
    return made


def check(program: str) -> str:
    """Return the errors and warnings of a program, each with a way out. Fast."""
    return _answer("check", program) or "no errors and no warnings"


def plan(program: str, section: str = "") -> str:
    """Choose the layout of a program, and return its plan on a page: parallel sizes, batch, memory, speed with its
    interval, and what to try next. `section` returns one part in full instead, such as decisions, memory or
    environment."""
    return _answer("plan", program, section=section or None)


def explain(names: list[str], program: str = "") -> str:
    """Explain values of a program's plan, such as tp, ep or a field of Megatron Bridge: their source, the rules that
    read them, the price of each alternative. Without a program: explain rules, diagnostics or words of a plan."""
    if program:
        return _answer("explain", program, names)
    library = load_stdlib()
    return "\n\n".join(page.page(n, library) or f"nothing is called `{n}`; {page.hint(n, library)}" for n in names)


def what_if(program: str, tokens: str = "", price: float | None = None) -> str:
    """Compare a program with other numbers of GPUs, other GPUs, lengths and number formats, at the same tokens a step.
    `tokens` (such as 10T) and `price` (of a GPU-hour) add days and cost."""
    return _answer("what-if", program, tokens=tokens or None, price=price)


def verify(program: str) -> str:
    """Build a program's recipe with the real Megatron Bridge on the CPU, and compare it with the plan. Takes about half
    a minute, and needs `pip install 'moedsl[bridge]'`."""
    return _answer("verify", program)


def verify_recipe(recipe: str, gpu: str, gpus: int) -> str:
    """Run a Megatron Bridge recipe (FILE.py:function or module:function) with the real Bridge on the CPU, and say what
    it refuses. The recipe's code runs as you."""
    return _answer("verify", None, [recipe], gpu=gpu, world=gpus)


def diagnose(log: str, run: str = "") -> str:
    """Find why a run failed or is slow: `log` is the path of its log, or a line of it; `run` the path of its run file,
    on which the edits are tried."""
    return _answer("diagnose", None, [log], run=run or None)


def _answer(command: str, program: str | None, paths: Sequence[str] = (), **options: Any) -> str:
    """Return what a command prints, with its warnings; raises ToolError with the diagnostics if one is an error. A
    program is text, or the path of a .moe file."""
    if program is not None and PATH.fullmatch(program):
        paths = [program, *paths]
    elif program is not None:
        options["expression"] = program
    try:
        with stopped_after(SECONDS):
            heard = ask(command, paths, options)
    except ValueError as wrong:
        raise ToolError(str(wrong)) from wrong
    found = visible(render_all(to_json(d, heard.sources) for d in heard.diagnostics))
    if any(d.is_error for d in heard.diagnostics):
        raise ToolError(found)
    return "\n".join(filter(None, (visible(heard.text), found)))
