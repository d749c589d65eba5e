"""`make bench`: whole processes, cold start included, medians of several runs. Nothing here fails for being slow."""

import json
import os
import re
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.helpers.paths import ROOT
from tests.helpers.tables import table_of

DEMO = ROOT / "examples" / "qwen3_235b_gb200_128k.moe"
RUNS = 7
SEVERAL = re.compile(r"^\s*(run \w|sweep |isolate |workflow\b)", re.M)
SINGLE = [p for p in sorted((ROOT / "examples").rglob("*.moe")) if not SEVERAL.search(p.read_text(encoding="utf-8"))]
"""The examples that are one run each."""
GOALS = table_of("bench", "commands: goals")
SOLVES = {
    "solve, 256 GPUs, nothing pinned": ("fit", 256),
    "solve, 256 GPUs, scale first": ("scale", 256),
    "solve, 256 GPUs, throughput first": ("throughput", 256),
    "solve, 16,384 GPUs, nothing pinned": ("fit", 16384),
    "solve, 16,384 GPUs, throughput first": ("throughput", 16384),
}

pytestmark = pytest.mark.bench


def median(run: Callable[[int], None]) -> float:
    """Median seconds of several runs."""
    times: list[float] = []
    for i in range(RUNS):
        start = time.perf_counter()
        run(i)
        times.append(time.perf_counter() - start)
    return statistics.median(times)


def environment(cache: Path) -> dict[str, str]:
    """Bytecode may be written, as where moedsl is installed: what is measured is not Python's compiler."""
    without = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}
    return {**without, "XDG_CACHE_HOME": str(cache)}


def compile_into(folder: Path, cache: Path) -> None:
    command = [sys.executable, "-m", "moedsl.cli.main", "compile", str(DEMO), "-o", str(folder)]
    subprocess.run(command, check=True, capture_output=True, cwd=ROOT, env=environment(cache))


def report(capsys: pytest.CaptureFixture[str], name: str, seconds: float, more: str = "") -> None:
    goal = f"  (goal {GOALS[name]})" if name in GOALS else ""
    with capsys.disabled():
        print(f"\n  {name:<42}{seconds:7.3f} s{goal}{more}", end="")


def test_compile_warm(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    compile_into(tmp_path / "first", tmp_path / "cache")
    seconds = median(lambda i: compile_into(tmp_path / f"out{i}", tmp_path / "cache"))
    report(capsys, "compile, stdlib cache warm", seconds)


def test_compile_cold(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    seconds = median(lambda i: compile_into(tmp_path / f"out{i}", tmp_path / f"cache{i}"))
    report(capsys, "compile, stdlib cache cold", seconds)


def plan_of(path: Path, cache: Path) -> tuple[float, float]:
    """Seconds of one `moedsl plan`: on the clock, and of the processor."""
    command = [sys.executable, "-m", "moedsl.cli.main", "plan", str(path)]
    before, start = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    subprocess.run(command, check=True, capture_output=True, cwd=ROOT, env=environment(cache))
    wall, after = time.perf_counter() - start, resource.getrusage(resource.RUSAGE_CHILDREN)
    return wall, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def test_plan_of_every_example(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Every example of one run, each the quickest of three, warm."""
    plan_of(DEMO, tmp_path)
    best = {p.stem: min(plan_of(p, tmp_path) for _ in range(3)) for p in SINGLE}
    for name, pick in (("plan, median of the examples", statistics.median_low), ("plan, the slowest example", max)):
        wall, cpu = pick(best.values())
        example = next(n for n, found in best.items() if found == (wall, cpu))
        report(capsys, name, wall, f"  {cpu:.3f} s of the processor, {example}, {len(best)} examples")


SOLVE = """
import json, resource, statistics, sys, time
from moedsl.solver.solve import solve
from moedsl.compiler import compile_source
from moedsl.support.source import Source
phase, gpus, runs = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
text = f"model MODEL; gb200 x {gpus}; {phase} first"
out = {}
for model in ("qwen3_235b_a22b", "deepseek_v3"):
    (p,) = compile_source(Source("bench", text.replace("MODEL", model)), "check").programs
    times = []
    for _ in range(runs):
        start = time.perf_counter()
        found = solve(p, gpus)
        times.append(time.perf_counter() - start)
    out[model] = (statistics.median(times), found.solution.legal)
print(json.dumps({"models": out, "mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024}))
"""


@pytest.mark.parametrize("name", SOLVES)
def test_solve(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    phase, gpus = SOLVES[name]
    command = [sys.executable, "-c", SOLVE, phase, str(gpus), str(RUNS)]
    found = json.loads(subprocess.run(command, check=True, capture_output=True, cwd=ROOT, text=True).stdout)
    for model, (seconds, legal) in found["models"].items():
        report(capsys, name, seconds, f"  {model}, {legal:,} legal meshes, peak {found['mb']:.0f} MB")


NONSENSE = """
import sys, time
from tests.syntax.test_bad_input import LIMIT, LONG
from moedsl.lang.parser import parse
from moedsl.lang.reader import from_text
from moedsl.support.source import Source
parse(Source("warm.moe", "seq 4k"))
times = {}
for name, make in LONG.items():
    text, start = make(LIMIT), time.perf_counter()
    source, found = from_text(text, "a.moe")
    assert found or parse(source)[1]
    times[name] = time.perf_counter() - start
print(*max((s, n) for n, s in times.items()))
"""


def test_bad_input(capsys: pytest.CaptureFixture[str]) -> None:
    """The slowest of the files of the largest size that is read; an error within a second is the goal."""
    done = subprocess.run([sys.executable, "-c", NONSENSE], check=True, capture_output=True, cwd=ROOT, text=True)
    seconds, name = done.stdout.split(maxsplit=1)
    report(capsys, "the worst bad input", float(seconds), f"  (goal 1 s)  {name.strip()}")


def test_bad_bytes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Whole processes on bytes that are no run file; an error within a second is the goal."""
    from tests.cli.test_main import BYTES

    times: list[tuple[float, str]] = []
    for name, data in BYTES.items():
        (tmp_path / "run.moe").write_bytes(data)
        start = time.perf_counter()
        command = [
            sys.executable,
            "-m",
            "moedsl.cli.main",
            "compile",
            str(tmp_path / "run.moe"),
            "-o",
            str(tmp_path / "out"),
        ]
        done = subprocess.run(command, capture_output=True, cwd=ROOT, check=False)
        times.append((time.perf_counter() - start, name))
        assert done.returncode == 1
    report(capsys, "compile of bad bytes, the slowest", max(times)[0], f"  (goal 1 s)  {max(times)[1]}")


EXPLAIN = """
import json, statistics, sys, time
from moedsl.queries.explain import answer
from moedsl.support.source import Source
text, names, runs = sys.argv[1], sys.argv[2].split(), int(sys.argv[3])
out = {}
for model in ("qwen3_235b_a22b", "deepseek_v3"):
    source = Source("bench.moe", f"{model}; gb200 x 1024; {text}")
    times = []
    for _ in range(runs):
        start = time.perf_counter()
        found = answer(source, names)
        times.append(time.perf_counter() - start)
    out[model] = (statistics.median(times), found.explanations[0]["kind"])
print(json.dumps(out))
"""
EXPLAINED = table_of("bench", "commands: explained")


@pytest.mark.parametrize("name", EXPLAINED)
def test_explain(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    """From the text to the explanation at 1,024 GPUs, process start-up and imports aside; the goal is 0.3 s."""
    text, names = EXPLAINED[name]
    command = [sys.executable, "-c", EXPLAIN, text, names, str(RUNS)]
    found = json.loads(subprocess.run(command, check=True, capture_output=True, cwd=ROOT, text=True).stdout)
    for model, (seconds, kind) in found.items():
        report(capsys, name, seconds, f"  (goal 0.3 s)  {model}, {kind}")


REFUSE = """
import sys, time
from moedsl.compiler import compile_source
from moedsl.support.source import Source
from tests.explainer.test_refusals import SLOWEST
times = []
for text in SLOWEST:
    compile_source(Source("run.moe", text), "check")
    start = time.process_time()
    assert compile_source(Source("run.moe", text), "solve").failed
    times.append((time.process_time() - start, text.splitlines()[0]))
seconds, text = max(times)
print(seconds, text, "of", len(times))
"""


def test_refusals(capsys: pytest.CaptureFixture[str]) -> None:
    """The slowest of the refusals that once took longest, in seconds of the processor; a second is the goal."""
    done = subprocess.run([sys.executable, "-c", REFUSE], check=True, capture_output=True, cwd=ROOT, text=True)
    seconds, text = done.stdout.split(maxsplit=1)
    report(capsys, "the slowest refusal known", float(seconds), f"  (goal 1 s)  {text.strip()}")
