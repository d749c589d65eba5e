"""Programs whose plans once took minutes or gigabytes: each command in a process of its own, which measures both."""

from itertools import combinations, islice
from pathlib import Path

import pytest

from moedsl.facts.axes import BY_NAME
from tests.helpers import rotation
from tests.helpers.small_programs import WHY
from tests.soak.commands import Running

MANY_GPUS = "qwen3_30b_a3b; b200 x 55440; seq 128; batch {batch}; throughput first; precision mxfp8\n"
COUNTS = {"recompute": 23, "offload_modules": 28, "cuda_graph": 7}


def _sets(axis: str, count: int) -> str:
    """Sets of an axis's words, of two words first."""
    words = BY_NAME[axis].words
    found = islice((some for size in (2, 3, 1) for some in combinations(words, size)), count)
    return ", ".join(f"[{', '.join(some)}]" for some in found)


def _many_candidates() -> str:
    lists = [f"candidates {axis} = [{_sets(axis, count)}] {WHY}" for axis, count in COUNTS.items()]
    sizes = f"candidates micro_batch = [1, 2, 3, 4, 5, 6, 7, 8] {WHY}"
    rules = "\n".join([*lists, sizes])
    return f"qwen3_235b_a22b\nh100 x 8192\nthroughput first\nseq 4k\nrules many {{\n{rules}\n}}\n"


PROGRAMS = {
    "a front of 55,440 GPUs": ("plan --pareto", MANY_GPUS.format(batch=55_440), 0),
    "no front of 55,440 GPUs": ("plan --pareto", MANY_GPUS.format(batch=1), 1),
    "many candidates": ("plan", _many_candidates(), 0),
    **({"what-if of many candidates": ("what-if", _many_candidates(), 0)} if rotation.ALL else {}),
}


@pytest.mark.parametrize("name", rotation.some("large programs", [*PROGRAMS], 1))
def test_a_large_program_is_answered_within_the_limits(name: str, tmp_path: Path) -> None:
    words, text, code = PROGRAMS[name]
    (tmp_path / "run.moe").write_text(text)
    command, *options = words.split()
    ended = Running([command, "run.moe", *options], tmp_path).wait()
    assert ended is not None and not ended.wrong, ended
    assert ended.code == code and "too_large" not in ended.errors, ended.errors[-2000:]
