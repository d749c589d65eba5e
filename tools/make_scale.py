"""Write docs/scale.md: what a run on 1,000, 10,000 and 100,000 GPUs costs to plan, to launch and to keep alive.

usage: .venv/bin/python tools/make_scale.py [--check]     --check compares what does not depend on this machine

Seconds are those of one core of the machine that wrote the document. tests/docs/test_scale.py checks the rest.
"""

from __future__ import annotations

import json
import os
import re
import resource
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

from failure_clock import Training, goodput

from moedsl.cost.goodput import Goodput, best_interval
from moedsl.support.text import duration, size

ROOT = Path(__file__).resolve().parent.parent
FILE = ROOT / "docs" / "scale.md"
GPUS = (1_024, 10_240, 98_304)
MONTHS = 24
SEED = 1
FILES = ("recipe.py", "plan.json", "launch.py", "job.sh")
TIMES = (0.25, 0.5, 0.7, 1.0, 1.4, 2.0, 4.0)
"""The intervals that the clock tries, over the best."""
Row = tuple[str, ...]
PROGRAM = """model deepseek_v3
gb200 x {gpus}
seq 4k
batch {batch}
data "/lustre/corpus/text_document"
set validation.eval_iters = 0
throughput first
cluster large {{
  executor slurm
  hardware gb200
  job_dir "/lustre/runs"
}}
"""


def moedsl(folder: Path, *words: str) -> None:
    """Run a command in a folder, in a process of its own."""
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    subprocess.run([sys.executable, "-m", "moedsl", *words], cwd=folder, env=env, check=True, capture_output=True)


@cache
def written(gpus: int) -> tuple[dict[str, Any], dict[str, int], float]:
    """Compile the run with its launch: the plan, the bytes of each file, and the seconds of a core."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "run.moe").write_text(PROGRAM.format(gpus=gpus, batch=4 * gpus), encoding="utf-8")
        before = resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime
        moedsl(folder, "compile", "run.moe", "-o", "out", "--emit", "launch", "--cluster", "large")
        seconds = resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime - before
        sizes = {f: (folder / "out" / f).stat().st_size for f in FILES}
        return json.loads((folder / "out/plan.json").read_text(encoding="utf-8")), sizes, seconds


def training(plan: Mapping[str, Any], every: int = 0) -> Training:
    """How the run of a plan trains, with its interval or another number of steps."""
    c, step = plan["checkpoints"], plan["estimate"]["step_time_s"]
    durable = c["write_s"] - c["blocked_s"]
    return Training(step, every or c["interval_steps"], c["blocked_s"], durable, c["failure_every_s"], c["return_s"])


def by_clock(plan: Mapping[str, Any]) -> tuple[float, float]:
    """The goodput on the clock, and the interval that keeps most there, over the best by the formula."""
    c, step = plan["checkpoints"], plan["estimate"]["step_time_s"]
    best = best_interval(c["blocked_s"], c["failure_every_s"]) / step
    kept = {t: goodput(training(plan, max(1, round(t * best))), MONTHS, SEED) for t in TIMES}
    return goodput(training(plan), MONTHS, SEED), max(kept, key=lambda t: kept[t])


def table(rows: Sequence[Sequence[str]]) -> str:
    """Write rows as a table, the first one its head."""
    head, *body = [f"| {' | '.join(row)} |" for row in rows]
    return "\n".join([head, f"|{' --- |' * len(rows[0])}", *body])


def remedies(plan: Mapping[str, Any]) -> Iterator[tuple[str, Training]]:
    """The run of a plan, and the same with what published runs have besides, one after another."""
    how = training(plan)
    yield "as planned: a new job after each failure", how
    how = replace(how, back=60 + 65 + plan["checkpoints"]["load_s"])
    yield "60 s to detect and 65 s to restart (ByteRobust, hot update)", how
    how = replace(how, back=60 + 65 + how.durable)
    yield "loads as fast as it writes", how
    how = replace(how, blocked=1.0)
    yield "saves that stop training 1 s", how
    yield "a GPU fails every 5,600 days (ByteRobust), not 2,000", replace(how, mtbf=how.mtbf * 5600 / 2000)


def best_of(how: Training) -> Training:
    """The same with its best interval, which is not shorter than a write."""
    steps = max(best_interval(how.blocked, how.mtbf), how.durable) / how.step
    return replace(how, every=max(1, round(steps)))


def formula(how: Training) -> float:
    """The goodput by the formula of a plan."""
    return Goodput(how.every * how.step, how.blocked, how.durable, how.mtbf, how.back).trains


def chained(plan: Mapping[str, Any], hours: float) -> float:
    """The goodput of a chain of jobs, which end before their time limit and start again in ten minutes."""
    how, c = training(plan), plan["checkpoints"]
    return goodput(replace(how, limit=3600 * hours, lead=c["write_s"] + 60, start=600 + c["load_s"]), MONTHS, SEED)


def sections() -> dict[str, str]:
    """Each table by its heading; those of FIXED do not depend on the machine."""
    made, kept, chains, ways = ([head] for head in HEADS.values())
    for gpus in GPUS:
        plan, sizes, seconds = written(gpus)
        nodes, files = gpus // plan["device"]["gpus_per_node"], [f"{sizes[f] / 1000:.1f} kB" for f in FILES]
        made.append((f"{gpus:,}", f"{gpus:,}", f"{nodes:,}", *files, f"{seconds:.1f}"))
        for rows, row in zip((kept, chains), trains(gpus), strict=True):
            rows.append(row)
    ways += [helped(*way) for way in remedies(written(GPUS[-1])[0])]
    return {n: table(rows) for n, rows in zip(HEADS, (made, kept, chains, ways), strict=True)}


def trains(gpus: int) -> tuple[Row, Row]:
    """The goodput of a run, and that of its chains of jobs."""
    plan, _, _ = written(gpus)
    c, (held, times) = plan["checkpoints"], by_clock(plan)
    saves = f"{c['interval_steps']} steps, {duration(c['interval_s'])}"
    shares = (f"{c['goodput']['trains']:.1%}", f"{held:.1%}", f"{times:g} times")
    kept = (f"{gpus:,}", size(c["size_gb"]), duration(c["failure_every_s"]), saves, *shares)
    return kept, (f"{gpus:,}", f"{held:.1%}", *(f"{chained(plan, h):.1%}" for h in (24, 4)))


def helped(what: str, how: Training) -> Row:
    """The goodput with a remedy and its best interval."""
    best = best_of(how)
    return what, f"{formula(best):.1%}", f"{goodput(best, MONTHS, SEED):.1%}"


HEADS: Mapping[str, Row] = {
    "Launch": ("GPUs", "ranks", "nodes", *FILES, "seconds of a core"),
    "Goodput": (
        "GPUs", "one checkpoint", "failures every", "saves every", "goodput", "on the clock", "best on the clock",
    ),
    "Chains of jobs": ("GPUs", "one job", "jobs of 24 h", "jobs of 4 h"),
    "What helps": (f"{GPUS[-1]:,} GPUs", "goodput", "on the clock"),
}  # fmt: skip
FIXED = ("Goodput", "Chains of jobs", "What helps")
"""The sections whose tables do not depend on the machine."""


def filled(text: str, tables: Mapping[str, str]) -> str:
    """Replace the table below each heading."""
    for heading, body in tables.items():
        before, found, after = text.partition(f"## {heading}\n")
        assert found, heading
        text = before + found + re.sub(r"(?m)(?:^\|.*\n)+", f"{body}\n", after, count=1)
    return text


def main(check: bool) -> int:
    """Write the document, or compare its fixed tables."""
    text, tables = FILE.read_text(encoding="utf-8"), sections()
    if check:
        return int(filled(text, {n: tables[n] for n in FIXED}) != text)
    FILE.write_text(filled(text, tables), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main("--check" in sys.argv[1:]))
