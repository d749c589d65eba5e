"""Packages of npm in the cache, one folder for each list of packages; no script of a package runs."""

import fcntl
import hashlib
import json
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

from tests.editors.needs import absent, cache, program

QUIET = ("--no-audit", "--no-fund", "--no-package-lock", "--ignore-scripts", "--loglevel=error")
CODE_SERVER = "4.99.4"
"""The release of code-server whose inner server is VS Code 1.99."""


def installed(package_json: Path) -> Path:
    """A folder with the node_modules that `package_json` lists."""
    text = package_json.read_text()
    listed = {key: value for key, value in json.loads(text).items() if key.lower().endswith("dependencies")}
    return _kept("npm", json.dumps({"private": True, **listed}), ((".", QUIET),))


def code_server() -> Path:
    """VS Code as a server: the folder of its out/server-main.js."""
    text = json.dumps({"private": True, "dependencies": {"code-server": CODE_SERVER}})
    inner = "node_modules/code-server/lib/vscode"
    own = (*QUIET, "--omit=dev")
    folder = _kept("code-server", text, ((".", QUIET), (inner, own), (f"{inner}/extensions", own)))
    return folder / inner


def _kept(name: str, package_json: str, steps: Sequence[tuple[str, Sequence[str]]]) -> Path:
    folder = cache(f"{name}-{hashlib.sha256(package_json.encode()).hexdigest()[:16]}")
    with folder.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        done = folder / "done"
        if not done.exists():
            shutil.rmtree(folder, ignore_errors=True)
            folder.mkdir()
            (folder / "package.json").write_text(package_json)
            for below, options in steps:
                _install(folder / below, options)
            done.touch()
    return folder


def _install(folder: Path, options: Sequence[str]) -> None:
    command = [program("npm", "npm"), "install", *options]
    run = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    if run.returncode:
        absent(f"npm install failed in {folder}: {' / '.join(run.stderr.strip().splitlines()[-3:])}")
