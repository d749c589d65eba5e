"""What a command imports: the everyday ones leave the heavy packages alone."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

HEAVY = {
    "torch",
    "transformers",
    "megatron",
    "nemo_run",
    "pygls",
    "lsprotocol",
    "scipy",
    "pandas",
    "matplotlib",
    "lark",
    "numpy.ma",
}
SAY = """
import json, sys
from moedsl.cli.main import main
for words in json.loads(sys.argv[1]):
    try:
        main(words)
    except SystemExit:
        pass
print(*sorted({m if m == "numpy.ma" else m.split(".")[0] for m in sys.modules}), file=sys.stderr)
"""


def imported(*commands: list[str]) -> set[str]:
    """The packages that commands, one after another in one process, have imported by their end."""
    words = [sys.executable, "-c", SAY, json.dumps(commands)]
    done = subprocess.run(words, capture_output=True, text=True, check=True)
    return set(done.stderr.splitlines()[-1].split())


GOOD = "qwen3_30b_a3b; gb200 x 8"
FULL = "deepseek_v3; h100 x 256"
"""A run that nearly fills its GPUs, so that the policies with the least memory are asked for."""


@pytest.mark.parametrize(
    ("commands", "also"),
    [
        ([["--help"], ["plan", "--help"]], {"numpy", "attrs", "jinja2"}),
        ([["check", "-e", GOOD], ["plan", "-e", FULL]], {"jinja2", "re2"}),
        ([["plan", "-e", GOOD, "--json"], ["models"], ["explain", "vpp"]], {"jinja2"}),
    ],
    ids=["help", "plan", "json"],
)
def test_nothing_heavy(commands: list[list[str]], also: set[str]) -> None:
    assert imported(*commands) & (HEAVY | also) == set()


@pytest.fixture(scope="module")
def warm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[list[str]]]:
    """Commands that have run before, with a cache of their own: the tests that run beside this one push entries out of
    theirs."""
    program, out = f"{GOOD}; set model.moe_z_loss_coeff = 0.001", str(tmp_path_factory.mktemp("compiled"))
    commands = [["check", "-e", program], ["plan", "-e", program], ["compile", "-e", program, "-o", out]]
    with pytest.MonkeyPatch.context() as patched:
        patched.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("cache")))
        imported(*commands)
        yield commands


def test_a_warm_run_compiles_no_classes(warm: list[list[str]]) -> None:
    assert "attr" not in imported(*warm)


def test_compile_stays_light(tmp_path: Path) -> None:
    assert imported(["compile", "-e", GOOD, "-o", str(tmp_path / "out")]) & HEAVY == set()
