"""What a command imports: the everyday ones leave the heavy packages alone."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

HEAVY = {
    "torch", "transformers", "megatron", "nemo_run", "pygls", "lsprotocol", "scipy", "pandas", "matplotlib",
    "numpy.ma",
}  # fmt: skip
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


def test_compile_stays_light(tmp_path: Path) -> None:
    assert imported(["compile", "-e", GOOD, "-o", str(tmp_path / "out")]) & HEAVY == set()
