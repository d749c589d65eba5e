"""`moedsl mcp`, asked by the client of the official SDK over a real process."""

import re
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from moedsl.cli.main import main
from tests.helpers.paths import ROOT

pytest.importorskip("mcp", reason="the environment of Python 3.11 has no SDK of the protocol")
anyio = pytest.importorskip("anyio")

from mcp.client.client import Client  # noqa: E402
from mcp.client.stdio import StdioServerParameters, stdio_client  # noqa: E402

RUN = "qwen3_30b_a3b; h100 x 16; fit first"
SKILL = ROOT / "editors/assistants/moedsl-plan-training/SKILL.md"
LOG = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB"


@asynccontextmanager
async def client(*options: str) -> AsyncIterator[Any]:
    command = StdioServerParameters(
        command=sys.executable,
        args=["-m", "moedsl", "mcp", *options],
        env={"PYTHONPATH": str(ROOT), "COLUMNS": "100"},
        cwd=ROOT,
    )
    async with Client(stdio_client(command)) as made:
        yield made


def served(ask: Callable[[Any], Awaitable[Any]], *options: str) -> Any:
    async def run() -> Any:
        async with client(*options) as made:
            return await ask(made)

    return anyio.run(run)


async def names(made: Any) -> list[str]:
    return [tool.name for tool in (await made.list_tools()).tools]


def test_the_skill_and_the_page_name_every_tool() -> None:
    tools = served(names)
    table = SKILL.read_text(encoding="utf-8").partition("## Which tool")[2].partition("\n## ")[0]
    assert {*re.findall(r"`([a-z_]+)`[;,]? ?", table)} >= {*tools}
    page = (ROOT / "docs/assistants.md").read_text(encoding="utf-8")
    assert [*re.findall(r"^\| `(\w+)` \|", page, re.MULTILINE)] == tools
    head = SKILL.read_text(encoding="utf-8").split("---")[1]
    assert [line.partition(":")[0] for line in head.strip().splitlines()] == [
        "name", "description", "license", "when_to_use"
    ] and f"name: {SKILL.parent.name}" in head  # fmt: skip


def test_an_answer_is_what_the_command_prints(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "100")
    asked = {
        "plan": ({"program": RUN}, ["plan", "-e", RUN]),
        "what_if": ({"program": RUN, "tokens": "1T", "price": 2.5},
                    ["what-if", "-e", RUN, "--tokens", "1T", "--price", "2.5"]),
        "explain": ({"program": RUN, "names": ["ep"]}, ["explain", "-e", RUN, "ep"]),
        "diagnose": ({"log": LOG}, ["diagnose", LOG]),
    }  # fmt: skip

    async def each(made: Any) -> dict[str, Any]:
        return {name: await made.call_tool(name, arguments) for name, (arguments, _) in asked.items()}

    for name, answer in served(each).items():
        main(asked[name][1])
        printed = capsys.readouterr().out.partition("\nNext  ")[0]
        (content,) = answer.content
        assert not answer.is_error and content.text.startswith(printed.rstrip()), name


def test_a_mistake_is_an_error_with_its_way_out() -> None:
    async def ask(made: Any) -> list[Any]:
        calls = ({"program": "qwen3_30b_a3b; h100 x 8; pin tp=16"}, {"program": RUN})
        return [await made.call_tool("check", call) for call in calls]

    wrong, right = served(ask)
    assert wrong.is_error and "std.mesh.attention_mesh" in wrong.content[0].text and "help: " in wrong.content[0].text
    assert not right.is_error and right.content[0].text == "no errors and no warnings"


def test_a_recipe_runs_only_where_that_was_allowed(tmp_path: Path) -> None:
    """A recipe that leaves a mark when it is imported."""
    recipe, mark = tmp_path / "recipe.py", tmp_path / "ran"
    recipe.write_text(f"open({str(mark)!r}, 'w').close()\ndef mine_config(): ...\n", encoding="utf-8")
    assert "verify_recipe" not in served(names)

    async def ask(made: Any) -> Any:
        return await made.call_tool("verify", {"program": f"{recipe}:mine_config"})

    assert served(ask).is_error and not mark.exists()
    assert "verify_recipe" in served(names, "--allow-recipes")
