"""Ten minutes of damaged programs, slow programs, kills and writers; a few seconds of each in `make test`."""

import os
import random
import re
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pytest

from moedsl.support.files import mixed
from moedsl.support.resources import stdlib_dir
from tests.helpers import damage, random_plans, rotation
from tests.helpers.paths import EXAMPLES
from tests.soak.commands import Ended, Running

SECONDS = float(os.environ.get("MOEDSL_SOAK", "600" if rotation.ALL else "3")) / 3
"""How long each of the three goes on."""
FIRST = float("inf") if SECONDS >= 60 else 0.0
"""Until when a long soak waits for its first program: on a machine that is busy enough, one takes longer than all."""
pytestmark = pytest.mark.timeout(SECONDS + 600)
Figures = Callable[[str, object], None]


def until() -> float:
    return time.monotonic() + SECONDS


def running(words: str, program: bytes, folder: Path) -> Running:
    """A command on a program in a folder; `compile` writes to `out` there."""
    (folder / "run.moe").write_bytes(program)
    command, *options = words.split()
    output = ["-o", "out", "--force"] if command == "compile" else []
    return Running([command, "run.moe", *options, *output], folder)


def judged(ended: Ended, program: object, words: object, seed: object) -> None:
    assert not ended.wrong, f"{ended.wrong}\nmoedsl {words}, MOEDSL_SEED={rotation.seed()}, {seed}\n{program}"


class Worst:
    """The most seconds and bytes of several commands, and what they were."""

    def __init__(self) -> None:
        self.cpu, self.peak, self.slowest = 0.0, 0, ""

    def take(self, ended: Ended, what: str) -> None:
        if ended.cpu > self.cpu:
            self.cpu, self.slowest = ended.cpu, what
        self.peak = max(self.peak, ended.peak)

    def __str__(self) -> str:
        return f"{self.cpu:.1f} s of a core and {self.peak / 1e6:.0f} MB at most"


# ---------------------------------------------------------------- damaged programs

COMMANDS = (
    "check", "plan --json", "plan --pareto", "plan --top 5", "what-if", "explain", "compile",
    "compile --emit launch --cluster local", "fmt",
)  # fmt: skip


def _corpus() -> list[str]:
    """The examples, and the models of the stdlib as a user's own."""
    own = [p.read_text(encoding="utf-8") for p in sorted((stdlib_dir() / "models").glob("*.moe"))]
    models = [re.sub(r"^model \w+", "model own", text, count=1, flags=re.M) for text in own]
    return [e.read_text(encoding="utf-8") for e in EXAMPLES] + [
        f"{m}\nmodel own; h100 x 64; fit first\n" for m in models
    ]


def test_damaged_programs(tmp_path: Path, record_property: Figures) -> None:
    corpus, end, worst, worst_refused = _corpus(), until(), Worst(), Worst()
    least = FIRST or end
    count = refused = 0
    while time.monotonic() < end:
        rng = rotation.dice(f"damaged {count}")
        program, words = damage.damaged(rng.choice(corpus), rng.choice(corpus), rng), rng.choice(COMMANDS)
        ended = running(words, program, tmp_path).wait(end if count else least)
        if ended is None:
            break
        judged(ended, program, words, f"damaged {count}")
        (worst_refused if ended.code else worst).take(ended, f"damaged {count}: {words}")
        count, refused = count + 1, refused + ended.code
    assert count or SECONDS < 60
    record_property("figures", f"{count} damaged programs: {worst} ({worst.slowest}); {refused} refused: {worst_refused} ({worst_refused.slowest})")  # fmt: skip


# ---------------------------------------------------------------- the slowest program


def test_the_slowest_program(tmp_path: Path, record_property: Figures) -> None:
    """A climb on the seconds of a command: one of the five slowest is changed; one in four is drawn afresh."""
    rng, end, worst = rotation.dice("slowest"), until(), Worst()
    least = FIRST or end
    count = answered = 0
    best: list[tuple[float, int, random_plans.Genes]] = []
    while time.monotonic() < end:
        fresh = not best or rng.random() < 0.25
        genes = random_plans.drawn(rng) if fresh else random_plans.changed(rng.choice(best)[2], rng)
        text, words = random_plans.text(genes), genes["command"]
        ended = running(words, text.encode(), tmp_path).wait(end if count else least)
        if ended is None:
            break
        judged(ended, text, words, f"program {count}")
        count, answered = count + 1, answered + (ended.code == 0)
        worst.take(ended, f"{words} of {text!r}")
        best = sorted([*best, (ended.cpu, count, genes)], key=lambda b: b[:2], reverse=True)[:5]
    assert count or SECONDS < 60
    record_property("figures", f"{count} random programs, {answered} answered: {worst}; the slowest is {worst.slowest}")


# ---------------------------------------------------------------- kills and writers

Files = Mapping[str, bytes]
ONE = "model qwen3_30b_a3b; h100 x 64; fit first; seq {seq}\n"
TWO = ONE + "sweep micro_batch in 1, 2\n"
"""The run of a program is in the folder itself; two are in folders below."""
GENERATIONS = [f"{seq}k" for seq in (4, 8, 16)]


def shown(folder: Path) -> Files:
    """Every file of a folder that is not hidden, by its path; a writer that was killed may leave a hidden one."""
    found = {str(p.relative_to(folder)): p for p in folder.rglob("*") if p.is_file() and not p.name.startswith(".")}
    return {name: p.read_bytes() for name, p in found.items()}


def hidden(folder: Path) -> list[Path]:
    return [*folder.rglob(".moedsl-*")]


@pytest.fixture
def generations(tmp_path: Path) -> Mapping[str, Files]:
    """What each program compiles to, by its name, written alone."""
    out = {}
    for kind, program in (("one", ONE), ("two", TWO)):
        for seq in GENERATIONS:
            name = f"{kind}{seq}"
            (tmp_path / f"{name}.moe").write_text(program.format(seq=seq))
            ended = compiling(tmp_path, name, f"alone/{name}").wait()
            assert ended is not None and ended.code == 0, ended
            out[name] = shown(tmp_path / "alone" / name)
    assert len({frozenset(files.items()) for files in out.values()}) == len(out)
    return out


def compiling(folder: Path, program: str, output: str, name: str = "command") -> Running:
    return Running(["compile", f"{program}.moe", "-o", output], folder, name)


def staged(folder: Path) -> bool:
    return any(name.startswith(".") for _, _, names in os.walk(folder) for name in names)


def killed(writer: Running, folder: Path, rng: random.Random) -> None:
    """Kill a writer at some time of its life, or while files are staged in the folder."""
    end = time.monotonic() + rng.random() / 2
    if rng.random() < 0.7:
        while writer.alive() and not staged(folder):
            time.sleep(0.0005)
        end = time.monotonic() + rng.random() / 50
    while writer.alive() and time.monotonic() < end:
        time.sleep(0.0005)
    writer.kill()


def rounds(end: float) -> Iterator[tuple[int, random.Random]]:
    at = 0
    while time.monotonic() < end:
        yield at, rotation.dice(f"writers {at}")
        at += 1


def test_kills_and_writers(tmp_path: Path, generations: Mapping[str, Files], record_property: Figures) -> None:
    """Each file is whole, all are of one program unless a writer was killed, and the next compile makes them so."""
    written = kills = torn = 0
    for at, rng in rounds(until()):
        folder = tmp_path / f"out{at // 20}"
        names = sorted(n for n in generations if n.startswith("one" if at // 20 % 2 else "two"))
        seed = f"MOEDSL_SEED={rotation.seed()}, writers {at}"
        writers = [compiling(tmp_path, rng.choice(names), folder.name, f"w{i}") for i in range(rng.randint(1, 4))]
        for victim in rng.sample(writers, rng.randint(0 if len(writers) > 1 else 1, len(writers))):
            killed(victim, folder, rng)
        ends = [writer.wait() for writer in writers]
        for ended in ends:
            waited = ended is not None and "another moedsl is writing there" in ended.errors
            assert ended is None or ended.code == 0 or waited, f"{ended}, {seed}"
        written, kills = written + len(writers), kills + ends.count(None)
        found, whole = shown(folder), [generations[n] for n in names]
        assert all(any(data == files[name] for files in whole) for name, data in found.items()), seed
        for run in {Path(name).parent for name in found}:
            files = {name: data for name, data in found.items() if Path(name).parent == run}
            told = any(files.items() <= made.items() for made in whole) or mixed(folder / run)
            assert told, f"nobody is told that {sorted(files)} are of two programs, {seed}"
        if found not in whole or hidden(folder):
            assert None in ends, f"{sorted(found)} are not of one program, {hidden(folder)}, {seed}"
            torn += 1
        name = rng.choice(names)
        ended = compiling(tmp_path, name, folder.name).wait()
        assert ended is not None and ended.code == 0, f"{ended}, {seed}"
        assert shown(folder) == generations[name] and not hidden(folder), seed
    record_property("figures", f"{written} writers of shared folders, {kills} killed; {torn} times the next one had to repair")  # fmt: skip


# ---------------------------------------------------------------- the limits of the soak itself


def test_a_command_that_answers_and_one_that_refuses_are_not_wrong(tmp_path: Path) -> None:
    two = running("check", TWO.format(seq="4k").encode(), tmp_path).wait()
    assert two is not None and (two.code, two.wrong) == (0, "") and two.cpu and two.peak
    none = running("check", b"model", tmp_path).wait()
    assert none is not None and (none.code, none.wrong) == (1, "")
