"""Keep the verification environments: a folder of wheels for each release of Bridge that is not the installed one.

Everything else, torch among it, is the installed one: a process finds the folder first and the rest where it was.
"""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from attrs import frozen

from moedsl.facts.releases import Release
from moedsl.support import user_cache
from moedsl.support.installed import version


@frozen
class NotMadeError(Exception):
    """Why an environment could not be made, and a way out."""

    message: str
    help: str

    def __str__(self) -> str:
        return self.message


def is_installed(release: Release) -> bool:
    """Whether this Python has that release itself, in any patch version."""
    return f"{version('megatron_bridge')}.".startswith(f"{release.minor}.")


def folder(release: Release) -> Path:
    """Where its environment is or will be."""
    return user_cache.folder() / "targets" / f"{release.bridge}-py{sys.version_info[0]}.{sys.version_info[1]}"


def made(release: Release) -> Path | None:
    """The folder of its environment if it is there and only this user can change it."""
    found = folder(release)
    return found if found.is_dir() and user_cache.is_private(found) else None


def is_ready(release: Release) -> bool:
    """Whether recipes for it can be verified here."""
    return is_installed(release) or made(release) is not None


def folders(release: Release) -> list[str]:
    """Where a process must look first to find that release; nowhere for the installed one."""
    found = None if is_installed(release) else made(release)
    return [str(found)] if found else []


def pins(release: Release) -> list[str]:
    """The wheels of its folder."""
    return [f"megatron-bridge=={release.bridge}", f"megatron-core=={release.core}", *release.own]


def make(release: Release) -> Path:
    """Fetch the wheels into the folder, whole or not at all; raises NotMadeError."""
    if importlib.util.find_spec("torch") is None:
        text = "the environments share torch and Transformer Engine, and this Python has no torch"
        raise NotMadeError(text, "pip install 'moedsl[bridge]' under Python 3.12 first")
    target = folder(release)
    target.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    with tempfile.TemporaryDirectory(prefix=".", dir=target.parent) as work:
        begun = Path(work) / "site"
        _install(release, begun)
        shutil.rmtree(target, ignore_errors=True)
        os.rename(begun, target)
    target.chmod(0o700)
    return target


def _install(release: Release, into: Path) -> None:
    words = ["--no-deps", "--target", str(into), *pins(release)]
    if importlib.util.find_spec("pip") is not None:
        command = [sys.executable, "-m", "pip", "install", "-q", "--disable-pip-version-check", *words]
    elif uv := shutil.which("uv"):
        command = [uv, "pip", "install", "-q", "--python", sys.executable, *words]
    else:
        raise NotMadeError("neither pip nor uv is here", "python -m ensurepip, or install uv")
    ran = subprocess.run(command, capture_output=True, text=True, check=False)
    if ran.returncode:
        said = [line for line in ran.stderr.splitlines() if line.strip()] or [f"{command[0]} ended with no word"]
        text = f"Bridge {release.bridge} could not be fetched: {said[-1].removeprefix('ERROR: ')}"
        help = f"it needs a package index once; on a machine without network, copy {folder(release)} from another one"
        raise NotMadeError(text, help)
