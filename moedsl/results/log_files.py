"""Logs on disk: which files of a folder a job printed."""

from __future__ import annotations

from pathlib import Path

from moedsl.support.owned_files import written_by_us

SUFFIXES = (".log", ".out", ".err", ".txt")


CODE = "code"
"""The folder below a task in which NeMo-Run ships what a job needs."""


PLAN = "plan.json"


def job_logs(folder: Path) -> list[Path]:
    """Files that a job printed: not what moedsl wrote, and not what NeMo-Run ships."""
    files = (p for p in sorted(folder.rglob("*")) if p.is_file() and p.suffix in SUFFIXES)
    return [p for p in files if CODE not in p.relative_to(folder).parts[:-1] and not _ours(p)]


def has_logs(folder: Path, but: str = "") -> bool:
    """Whether a job has printed anything there; `but` is a name that does not count."""
    return any(p.name != but for p in job_logs(folder))


def _ours(path: Path) -> bool:
    with path.open("rb") as stream:
        head = stream.read(200)
    return head.startswith(b"# moedsl:") or written_by_us(path.name, head.decode(errors="replace")) != "foreign"
