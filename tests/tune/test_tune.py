"""`moedsl tune`: the loop finds a better layout on a machine whose truth is other constants, and survives a kill."""

import json
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from attrs import define, field

from moedsl.runs.tune import loop
from moedsl.runs.tune.loop import LOST, Ends, Launcher, evidence, tune
from moedsl.support.diagnostics import Diagnostic, error
from moedsl.support.source import Source
from tests.helpers.programs import compiled
from tests.helpers.simulated_cluster import Truth

RUN = "model qwen3_30b_a3b; h100 x 16; seq 4k; batch 512; precision bf16; routing balanced; throughput first"


@define
class Simulated:
    """A launcher whose jobs end at once; it is killed before its n-th wait, if n is given."""

    truth: Truth
    folder: Path
    killed_at: int | None = None
    waits: int = 0
    submitted: list[str] = field(factory=list)

    def submit(self, file: Path, named: Callable[[str], None]) -> int:
        id = f"job_{len(self.submitted)}"
        named(id)
        (plan,) = compiled(file.read_text()).plans
        self.submitted.append(id)
        self.truth.run(plan, self.folder / id, seed=len(self.submitted))
        return 0

    def wait(self, id: str) -> Sequence[Path] | Diagnostic:
        self.waits += 1
        if self.waits == self.killed_at:
            raise KeyboardInterrupt
        if id not in self.submitted:
            return error(LOST, "it was never submitted")
        return [self.folder / id / "train.log"]


@pytest.fixture(scope="module")
def base() -> loop.Base:
    made = loop.base(Source("run.moe", RUN))
    assert isinstance(made, loop.Base)
    return made


def opened(folder: Path, base: loop.Base) -> loop.Journal:
    made = loop.opened(folder, base.plan.experiment.fingerprint, loop.machines(base.plan))
    assert isinstance(made, loop.Journal)
    return made


def go(base: loop.Base, folder: Path, launcher: Launcher, budget: int, stop: float = 0.01) -> loop.Journal:
    mine = opened(folder, base)
    assert tune(base, mine, launcher, Ends(budget, stop), lambda _: None) == 0
    return mine


def steps(base: loop.Base, done: loop.Journal) -> list[float]:
    return [t.step for t in evidence(base, done) if t.step]


def test_it_finds_a_better_layout_in_few_jobs(base: loop.Base, tmp_path: Path) -> None:
    """On this machine HybridEP reaches a quarter of the network bandwidth that the estimate has for it."""
    truth = Truth({"network_hybridep": 0.25})
    done = go(base, tmp_path / "tune", Simulated(truth, tmp_path / "jobs"), budget=6)
    found = steps(base, done)
    assert min(found) < 0.97 * found[0]
    assert len(done.tries) <= 6
    marks = set()
    for t in done.tries:
        (plan,) = compiled(done.file_of(t).read_text()).plans
        marks.add(plan.experiment.fingerprint)
    assert marks == {base.plan.experiment.fingerprint}
    layouts = [tuple(sorted(t.codes.items())) for t in done.tries]
    assert len(set(layouts)) == len(layouts)
    table = (tmp_path / "tune" / "table.txt").read_text()
    assert "fastest" in table and "stop: " in table
    svg = ElementTree.parse(tmp_path / "tune" / "journal.svg")
    assert len([e for e in svg.iter() if e.tag.endswith("circle")]) == len(found) + 1  # one is the legend's


def test_a_killed_one_goes_on(base: loop.Base, tmp_path: Path) -> None:
    """Killed while it waits for its second job: that job is waited for, and not submitted again."""
    launcher = Simulated(Truth({}), tmp_path / "jobs", killed_at=2)
    with pytest.raises(KeyboardInterrupt):
        go(base, tmp_path / "tune", launcher, budget=3)
    saved = json.loads((tmp_path / "tune" / "journal.json").read_text())
    assert [(t["id"], t["row"] is not None) for t in saved["tries"]] == [("job_0", True), ("job_1", False)]
    launcher.killed_at = None
    done = go(base, tmp_path / "tune", launcher, budget=3, stop=0.0)
    assert launcher.submitted == ["job_0", "job_1", "job_2"]
    assert [t.name for t in done.tries] == ["01", "02", "03"]
    assert done.stop == "the budget of 3 jobs is spent"


def test_killed_before_the_submission(base: loop.Base, tmp_path: Path) -> None:
    """Its id was kept, and the scheduler has no such job: it is submitted."""
    mine = opened(tmp_path / "tune", base)
    launcher = Simulated(Truth({}), tmp_path / "jobs")
    go(base, tmp_path / "tune", launcher, budget=1)
    mine = opened(mine.folder, base)
    mine.tries[0].id, mine.tries[0].row = "lost_1", None
    mine.save()
    done = go(base, tmp_path / "tune", launcher, budget=1)
    assert launcher.submitted == ["job_0", "job_1"]
    assert done.tries[0].row


def test_what_runs_out_of_memory_costs_a_job_and_no_more(base: loop.Base, tmp_path: Path) -> None:
    truth = Truth({}, fits_gib=base.plan.estimate.memory.peak_gib - 1)
    done = go(base, tmp_path / "tune", Simulated(truth, tmp_path / "jobs"), budget=4)
    first, *others = evidence(base, done)
    assert first.out_of_memory
    assert others and not any(t.out_of_memory for t in others)
    changes = [t.change for t in opened(done.folder, base).tries]
    assert changes[1] and changes[1]["gain"] is None and changes[1]["peak_gib"] < truth.fits_gib
    assert all(c and c["gain"] is not None for c in changes[2:])
    assert "out of memory" in (done.folder / "table.txt").read_text()


def test_a_first_job_that_fails_ends_it(base: loop.Base, tmp_path: Path) -> None:
    @define
    class Broken(Simulated):
        def wait(self, id: str) -> Sequence[Path] | Diagnostic:
            (self.folder / id / "train.log").write_text("Traceback (most recent call last):\nValueError: no data\n")
            return [self.folder / id / "train.log"]

    done = go(base, tmp_path / "tune", Broken(Truth({}), tmp_path / "jobs"), budget=4)
    assert len(done.tries) == 1
    assert done.stop and "measured nothing" in done.stop


def test_a_folder_of_something_else_is_refused(base: loop.Base, tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("mine\n")
    found = loop.opened(tmp_path, "abc", "16 h100")
    assert isinstance(found, Diagnostic) and "holds no tuning" in found.message
    go(base, tmp_path / "tune", Simulated(Truth({}), tmp_path / "jobs"), budget=1)
    mark = base.plan.experiment.fingerprint
    other = loop.opened(tmp_path / "tune", "another", "16 h100")
    assert isinstance(other, Diagnostic) and "tunes experiment" in other.message
    for machines in ("32 h100", "16 h200"):
        other = loop.opened(tmp_path / "tune", mark, machines)
        assert isinstance(other, Diagnostic) and other.id == "tune.folder"
        assert f"measures steps on 16 h100, and the file is for {machines}" in other.message
    assert isinstance(loop.opened(tmp_path / "tune", mark, "16 h100"), loop.Journal)
    (tmp_path / "tune" / "journal.json").write_text("{")
    assert isinstance(loop.opened(tmp_path / "tune", "abc", "16 h100"), Diagnostic)


FOREIGN = ["../../etc/x", "/etc/x", "", "1", "02", 1, None, ["01"], {"01": 1}]


@pytest.mark.parametrize("signed", [False, True], ids=["edited", "signed"])
@pytest.mark.parametrize("name", FOREIGN, ids=str)
def test_jobs_of_another_name_are_refused(base: loop.Base, tmp_path: Path, name: Any, signed: bool) -> None:
    """A way of somebody else names no file outside of its folder, whether its hash is right or not."""
    mine = loop.Journal(
        tmp_path / "tune", base.plan.experiment.fingerprint, "16 h100", [loop.Try(name, base.start, None)]
    )
    mine.folder.mkdir()
    mine.save()
    file = mine.folder / "journal.json"
    text = file.read_text() if signed else file.read_text().replace('"stop": null', '"stop": 1')
    file.write_text(text)
    found = loop.opened(mine.folder, mine.experiment, mine.machines)
    assert isinstance(found, Diagnostic) and found.id == "tune.folder"
    assert [*tmp_path.rglob("*")] == [mine.folder, file]


def test_files_of_the_user_stay(base: loop.Base, tmp_path: Path) -> None:
    """A file or a link in the folder that is not of the tuning ends it before it is written."""
    (tmp_path / "mine.txt").write_text("mine\n")
    go(base, tmp_path / "tune", Simulated(Truth({}), tmp_path / "jobs"), budget=1)
    for name in ("table.txt", "journal.svg", "02/run.moe"):
        folder = tmp_path / name.replace("/", "_")
        shutil.copytree(tmp_path / "tune", folder)
        (folder / name).unlink(missing_ok=True)
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).symlink_to(tmp_path / "mine.txt")
        ended = tune(base, opened(folder, base), Simulated(Truth({}), tmp_path / "more"), Ends(2, 0.0), lambda _: None)
        assert isinstance(ended, Diagnostic) and ended.id == "tune.folder", name
        assert (tmp_path / "mine.txt").read_text() == "mine\n"


def test_links_in_place_of_the_folder(base: loop.Base, tmp_path: Path) -> None:
    go(base, tmp_path / "theirs", Simulated(Truth({}), tmp_path / "jobs"), budget=1)
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "journal.json").symlink_to(tmp_path / "theirs" / "journal.json")
    (tmp_path / "nowhere").symlink_to(tmp_path / "none")
    for folder in ("mine", "nowhere"):
        found = loop.opened(tmp_path / folder, base.plan.experiment.fingerprint, "16 h100")
        assert isinstance(found, Diagnostic) and found.id == "tune.folder"
    assert not (tmp_path / "none").exists()


def test_jobs_have_checkpoints_of_their_own(base: loop.Base) -> None:
    assert loop.checkpoints_of(base, "01") == ""  # mock data saves none
    real = loop.base(Source("run.moe", RUN + '; data "/data/text_document"'))
    assert isinstance(real, loop.Base)
    said = loop.checkpoints_of(real, "01")
    assert isinstance(said, str) and said.endswith('/01"\n')
    made = loop.with_layout(real, real.start, "tried", said)
    assert isinstance(made, loop.RunFile), made
    named = loop.base(Source("run.moe", RUN + '; data "/data/text_document"; set checkpoint.save = "/ckpt"'))
    assert isinstance(named, loop.Base)
    assert isinstance(loop.checkpoints_of(named, "01"), Diagnostic)


def test_files_that_it_uses_are_found_from_another_folder(tmp_path: Path) -> None:
    (tmp_path / "mine.moe").write_text('rules mine { prefer few: tp == 1 because "ours" cite ours "notes" }\n')
    source = Source(str(tmp_path / "run.moe"), 'use "mine.moe"\n' + RUN.replace("; ", "\n"))
    made = loop.base(source)
    assert isinstance(made, loop.Base), made
    written = loop.with_layout(made, made.start, "tried")
    assert isinstance(written, loop.RunFile), written
    assert f'use "{tmp_path / "mine.moe"}"' in written.text
