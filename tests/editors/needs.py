"""What tests of editors need from the machine: a test without it skips with the reason, and fails in CI."""

import os
import shutil
import stat
import sys
from pathlib import Path
from typing import NoReturn

import editors_fetch
import pytest

from tests.helpers.paths import ROOT


def absent(reason: str) -> NoReturn:
    """Ends the test: skipped on a person's machine, failed where CI or MOEDSL_REQUIRE_ALL is set."""
    if os.environ.get("CI") or os.environ.get("MOEDSL_REQUIRE_ALL") == "1":
        pytest.fail(reason, pytrace=False)
    pytest.skip(reason)


def program(name: str, package: str) -> str:
    """The path of a program of this machine."""
    found = shutil.which(name)
    return found or absent(f"no {name} here; tools/system installs Debian's package {package}")


def unpacked(package: str) -> editors_fetch.Unpacked:
    """A program of a newer Debian, from the cache or fetched now."""
    try:
        return editors_fetch.fetch(package)
    except editors_fetch.FetchFailed as failed:
        absent(str(failed))


def cache(name: str) -> Path:
    folder = editors_fetch.cache() / "editors" / name
    folder.parent.mkdir(parents=True, exist_ok=True)
    return folder


def moedsl_program(folder: Path) -> Path:
    """An executable `moedsl` in `folder` that runs this checkout under this Python."""
    script = folder / "moedsl"
    script.write_text(f'#!/bin/sh\nPYTHONPATH="{ROOT}" exec "{sys.executable}" -m moedsl.cli.main "$@"\n')
    script.chmod(script.stat().st_mode | stat.S_IXUSR)
    return script
