"""Compare the speed of two checkouts, in turn: start-up and what `make bench` measures, in seconds of the processor.

usage: .venv/bin/python tools/compare_speed.py OLD NEW [ROWS]     each with its .venv; ROWS is a part of their names

Each row is the median over pairs of runs, of the old and of the new. Both compile their bytecode first, and each has a
cache of its own. The questions are those of the newer checkout's tests/bench, asked with the older one's names.
"""

from __future__ import annotations

import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

PAIRS = 21
INSIDE = 7
"""Pairs of processes that time a question inside, each several times."""
DEMO = "examples/qwen3_235b_gb200_128k.moe"
STARTS = {
    "plan": ["plan", DEMO],
    "check": ["check", DEMO],
    "--help": ["--help"],
    "compile": ["compile", DEMO, "-o"],
    "compile, cold": ["compile", DEMO, "-o"],
}
"""Whole processes; the last two write into a folder of their own."""
BENCH = (("tests/bench/test_commands.py", "tests.bench.test_commands"), ("tests/test_bench.py", "tests.test_bench"))
MAIN = "import sys; from {} import main; sys.exit(main())"
ASK = (
    "import json, {0} as b; print(json.dumps([b.SOLVE, b.EXPLAIN, b.SOLVES, b.EXPLAINED, [p.stem for p in b.SINGLE]]))"
)
Measure = Callable[["Tree"], float]


class Tree:
    """A checkout with its own cache."""

    def __init__(self, root: Path, scratch: Path) -> None:
        self.root, self.scratch, self.runs = root, scratch, 0
        self.main = MAIN.format("moedsl.cli.main" if (root / "moedsl/cli").is_dir() else "moedsl.cli")
        module = next(m for file, m in BENCH if (root / file).exists())
        self.solve, self.explain, self.solves, self.explained, self.single = json.loads(
            self.run("-c", ASK.format(module))
        )

    def run(self, *words: str, cache: str = "cache") -> str:
        without = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}
        env = {**without, "XDG_CACHE_HOME": str(self.scratch / cache)}
        done = subprocess.run(
            [self.root / ".venv/bin/python", *words], cwd=self.root, env=env, capture_output=True, text=True, check=True
        )
        return done.stdout

    def command(self, *words: str, cold: bool = False) -> float:
        """Seconds of the processor of a whole process."""
        self.runs += 1
        out = [str(self.scratch / f"out{self.runs}")] if words[-1] == "-o" else []
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        self.run("-c", self.main, *words, *out, cache=f"cold{self.runs}" if cold else "cache")
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime

    def example(self, name: str) -> str:
        """The path of an example in the checkout, whichever folder it is in."""
        return str(next((self.root / "examples").rglob(f"{name}.moe")).relative_to(self.root))

    def inside(self, script: str, *words: str) -> dict[str, float]:
        """Seconds of the processor that a script measures inside, by model."""
        found = json.loads(self.run("-c", script.replace("perf_counter", "process_time"), *words))
        return {model: seconds for model, (seconds, _) in found.get("models", found).items()}


def in_turn(old: Tree, new: Tree, pairs: int, measure: Measure) -> tuple[float, float]:
    """The medians of a measure of both, run in turn after one run of each that does not count."""
    times: dict[Tree, list[float]] = {old: [], new: []}
    for i in range(pairs + 1):
        for tree in (old, new) if i % 2 else (new, old):
            times[tree].append(measure(tree))
    return statistics.median(times[old][1:]), statistics.median(times[new][1:])


def whole(old: Tree, new: Tree, rows: str) -> Iterator[tuple[str, float, float]]:
    """Start-up, and the plans of the examples that both have."""
    for name, words in STARTS.items():
        if rows in name:
            yield name, *in_turn(old, new, PAIRS, lambda t, w=words, c="cold" in name: t.command(*w, cold=c))
    if rows in "plan of examples":
        both = [e for e in old.single if e in new.single]
        each = {e: in_turn(old, new, 3, lambda t, e=e: t.command("plan", t.example(e))) for e in both}
        before, after = (statistics.median(times) for times in zip(*each.values(), strict=True))
        yield f"plan, median of {len(both)} examples", before, after
        slowest = max(each, key=lambda e: each[e][1])
        yield f"plan, the slowest: {slowest}", *each[slowest]


def inner(old: Tree, new: Tree, rows: str) -> Iterator[tuple[str, float, float]]:
    """What the benchmark measures inside a process."""
    asked = {n: (phase, str(gpus), "7") for n, (phase, gpus) in new.solves.items() if n in old.solves}
    asked |= {n: (text, names, "7") for n, (text, names) in new.explained.items() if n in old.explained}
    for name, words in asked.items():
        if rows not in name:
            continue
        times: dict[Tree, list[dict[str, float]]] = {old: [], new: []}
        for i in range(INSIDE):
            for tree in (old, new) if i % 2 else (new, old):
                times[tree].append(tree.inside(tree.solve if name in new.solves else tree.explain, *words))
        for model in times[new][0]:
            before, after = (statistics.median(t[model] for t in times[tree]) for tree in (old, new))
            yield f"{name}, {model}", before, after


def main() -> None:
    rows = "".join(sys.argv[3:4])
    with tempfile.TemporaryDirectory() as scratch:
        old, new = (Tree(Path(root).resolve(), Path(scratch) / str(i)) for i, root in enumerate(sys.argv[1:3]))
        print("| Measured | Old | New | Ratio |\n|---|---|---|---|")
        for measure in (whole, inner):
            for name, before, after in measure(old, new, rows):
                print(f"| {name} | {before:.3f} s | {after:.3f} s | {after / before:.2f} |", flush=True)


if __name__ == "__main__":
    main()
