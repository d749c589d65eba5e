"""The folder of one run of the tests, which its workers share and which goes with it, however it ends.

The run holds a lock on it. What finds the lock free may remove the folder: the run itself, a process that it started,
or the next run.
"""

import fcntl
import os
import shutil
import tempfile
from pathlib import Path
from typing import IO

VARIABLE = "MOEDSL_TEST_FOLDER"
_PREFIX, LOCK = "moedsl-tests-", "run.lock"


def path() -> Path:
    """The folder of this run."""
    return Path(os.environ[VARIABLE])


def make() -> IO[str]:
    """Makes the folder and names it to the workers; the lock, held until it is closed."""
    for old in Path(tempfile.gettempdir()).glob(f"{_PREFIX}*"):
        if is_left(old):
            shutil.rmtree(old, ignore_errors=True)
    folder = Path(tempfile.mkdtemp(prefix=_PREFIX))
    os.environ[VARIABLE] = str(folder)
    lock = (folder / f"{LOCK}.new").open("w")
    fcntl.flock(lock, fcntl.LOCK_EX)
    (folder / f"{LOCK}.new").rename(folder / LOCK)
    return lock


def remove(lock: IO[str]) -> None:
    """Removes the folder that `make` made."""
    shutil.rmtree(path(), ignore_errors=True)
    del os.environ[VARIABLE]
    lock.close()


def is_left(folder: Path, begun: bool = False) -> bool:
    """Whether the run of a folder has ended; the lock of one that has `begun` goes only with it."""
    try:
        with (folder / LOCK).open() as lock:
            fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except FileNotFoundError:
        return begun or not folder.exists()
    except OSError:  # not ours to open
        return not folder.exists()
    return True
