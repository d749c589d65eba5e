"""Read a run file as it stands in a commit of git: `REV:FILE`."""

from __future__ import annotations

import re
import subprocess

from moedsl.lang import reader
from moedsl.lang.reader import LIMIT, Read
from moedsl.support.diagnostics import error

IN_COMMIT = re.compile(r"(?P<commit>[^:-][^:]*(?<!\.moe)):(?P<file>[^:]+\.moe)(?::(?P<run>.+))?")
"""A file in a commit, and one of its runs."""


def read(commit: str, file: str) -> Read:
    """Read the file as the commit has it; its path is relative to the working directory, as others are."""
    path = file if file.startswith("/") else f"./{file}"
    name = f"{commit}:{file}"
    try:
        done = subprocess.run(["git", "cat-file", "blob", f"{commit}:{path}"], capture_output=True, check=False)
    except OSError as problem:
        return None, (error("diff.input", f"{name} cannot be read without git: {problem.strerror}"),)
    if done.returncode:
        why = done.stderr.decode(errors="replace").strip().removeprefix("fatal: ")
        return None, (error("diff.input", f"{name} cannot be read: {why}", help="`git log -- FILE` lists its commits"),)
    return reader.from_bytes(done.stdout[: LIMIT + 1], name)
