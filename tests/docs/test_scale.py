"""docs/scale.md: its tables are those of its script, and a launch is as small for 100,000 ranks as for 1,000."""

from pathlib import Path

import make_scale
import pytest

from tests.helpers import forks, rotation

TABLES = {
    heading: make_scale.FILE.read_text(encoding="utf-8").split(f"## {heading}\n")[1].split("\n## ")[0]
    for heading in make_scale.FIXED
}
REMEDIES = 5


@pytest.fixture(autouse=True)
def forked(monkeypatch: pytest.MonkeyPatch) -> None:
    """Compile in forks, which need not import moedsl."""

    def moedsl(folder: Path, *words: str) -> None:
        done = forks.run("-m", "moedsl", *words, cwd=folder)
        assert not done.returncode, done.stderr

    monkeypatch.setattr(make_scale, "moedsl", moedsl)


def rows(heading: str) -> list[str]:
    return [line for line in TABLES[heading].splitlines() if line.startswith("|")][2:]


def test_the_tables_have_no_other_rows() -> None:
    sizes = [f"{gpus:,}" for gpus in make_scale.GPUS]
    for heading in ("Goodput", "Chains of jobs"):
        assert [row.split(" | ")[0] for row in rows(heading)] == [f"| {gpus}" for gpus in sizes]
    assert len(rows("What helps")) == REMEDIES
    assert all(_line(make_scale.HEADS[heading]) in text for heading, text in TABLES.items())


@pytest.mark.parametrize("place", rotation.some("scale", range(len(make_scale.GPUS)), 1))
def test_a_run_trains_as_its_rows_say(place: int) -> None:
    said = [rows("Goodput")[place], rows("Chains of jobs")[place]]
    assert said == [_line(row) for row in make_scale.trains(make_scale.GPUS[place])], "run tools/make_scale.py"


@pytest.mark.parametrize("place", rotation.some("remedies", range(REMEDIES), 1))
def test_a_remedy_helps_as_its_row_says(place: int) -> None:
    plan, _, _ = make_scale.written(make_scale.GPUS[-1])
    (way,) = [way for i, way in enumerate(make_scale.remedies(plan)) if i == place]
    assert rows("What helps")[place] == _line(make_scale.helped(*way)), "run tools/make_scale.py"


def _line(row: make_scale.Row) -> str:
    return f"| {' | '.join(row)} |"


@pytest.mark.parametrize("file", make_scale.FILES)
def test_no_file_grows_with_the_ranks(file: str) -> None:
    small, large = (make_scale.written(gpus)[1][file] for gpus in (make_scale.GPUS[0], make_scale.GPUS[-1]))
    assert large < 1.25 * small
