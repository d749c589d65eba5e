"""A worker of pytest-xdist that dies ends the run soon, with the name of its test."""

import os
import subprocess
import sys

from tests.helpers import run_folder
from tests.helpers.paths import ROOT


def test_a_worker_that_dies_ends_the_run() -> None:
    files = ["tests/helpers/dying.py", "tests/helpers/waiting.py"]
    words = ["-m", "pytest", "--dist", "loadfile", "-n", "2", "-q", "-p", "no:cacheprovider", *files]
    own = {n: v for n, v in os.environ.items() if not n.startswith("PYTEST_") and n != run_folder.VARIABLE}
    command = [sys.executable, *words]
    ran = subprocess.run(command, cwd=ROOT, env=own, capture_output=True, text=True, timeout=90, check=False)
    assert ran.returncode == 3, ran.stdout
    assert "died in tests/helpers/dying.py::test_that_ends_its_worker" in ran.stdout
