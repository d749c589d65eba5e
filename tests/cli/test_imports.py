"""What a command imports: the everyday ones leave the heavy packages alone."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

HEAVY = {"torch", "transformers", "megatron", "nemo_run", "pygls", "lsprotocol", "scipy", "pandas", "matplotlib"}
SAY = """
import sys
from moedsl.cli.main import main
try:
    main(sys.argv[1:])
except SystemExit:
    pass
print(*sorted({m.split(".")[0] for m in sys.modules}), file=sys.stderr)
"""


def imported(*words: str) -> set[str]:
    """The packages that a command has imported by its end."""
    done = subprocess.run([sys.executable, "-c", SAY, *words], capture_output=True, text=True, check=True)
    return set(done.stderr.splitlines()[-1].split())


GOOD = "qwen3_30b_a3b; gb200 x 8"


@pytest.mark.parametrize(
    ("words", "also"),
    [
        (["--help"], {"numpy", "attrs", "lark", "jinja2"}),
        (["plan", "--help"], {"numpy", "attrs", "lark", "jinja2"}),
        (["check", "-e", GOOD], {"jinja2", "re2"}),
        (["plan", "-e", GOOD], {"jinja2", "re2"}),
        (["plan", "-e", GOOD, "--json"], {"jinja2"}),
        (["models"], {"jinja2"}),
        (["explain", "vpp"], {"jinja2"}),
    ],
)
def test_nothing_heavy(words: list[str], also: set[str]) -> None:
    assert imported(*words) & (HEAVY | also) == set()


def test_a_warm_stdlib_needs_no_parser_generator() -> None:
    imported("hardware")
    assert "lark" not in imported("hardware")


@pytest.mark.parametrize("command", ["check", "plan"])
def test_a_warm_run_compiles_no_classes(command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))  # the tests that run beside this one push entries out of theirs
    fields = f"{GOOD}; set model.moe_z_loss_coeff = 0.001"
    imported(command, "-e", fields)
    assert "attr" not in imported(command, "-e", fields)


def test_compile_stays_light(tmp_path: Path) -> None:
    assert imported("compile", "-e", GOOD, "-o", str(tmp_path / "out")) & HEAVY == set()
