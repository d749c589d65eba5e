"""The notebook in examples/, executed by a real kernel."""

import os
from pathlib import Path

import pytest

from tests.helpers.paths import ROOT

nbclient = pytest.importorskip("nbclient", reason="the environment of Python 3.11 has no kernel")
nbformat = pytest.importorskip("nbformat")

NOTEBOOKS = [*(ROOT / "examples" / "notebooks").glob("*.ipynb")]


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda p: p.stem)
def test_a_notebook_runs_and_shows_plans_tables_and_plots(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")]))
    notebook = nbformat.read(path, as_version=4)
    assert not any(cell.get("outputs") for cell in notebook.cells), "clear the outputs before a commit"
    nbclient.NotebookClient(notebook, timeout=600, resources={"metadata": {"path": str(path.parent)}}).execute()
    shown = [output.get("data", {}) for cell in notebook.cells for output in cell.get("outputs", ())]
    html = "".join(data.get("text/html", "") for data in shown)
    assert "tokens/s/GPU" in html and "fp8_blockwise" in html and "step_time_s" in html
    assert sum("image/png" in data for data in shown) == 2


def test_there_is_one() -> None:
    assert NOTEBOOKS
