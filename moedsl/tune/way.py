"""Keep the way of a tuning in a folder: what was tried, its job and its result, so that a killed one goes on."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from attrs import define, field

from moedsl.diagnostics.model import Diagnostic, error
from moedsl.support import atomic_file, foreign_json
from moedsl.tune.evidence import Codes

FILE = "way.json"


@define
class Try:
    """One job: its layout, why it was tried, and what came of it."""

    name: str
    codes: Codes
    change: Mapping[str, Any] | None
    """The candidate, as in the report; None for the plan itself."""
    id: str | None = None
    """The id of its experiment, once it is submitted or about to be."""
    row: Mapping[str, Any] | None = None
    """Its row of `moedsl results`, once it has ended."""


@define
class Way:
    """All tries of one experiment, in order."""

    folder: Path
    experiment: str
    """The fingerprint, which all share."""
    tries: list[Try] = field(factory=list)
    stop: str | None = None
    """Why it ended."""

    def save(self) -> None:
        """Write everything in one step, so that a kill leaves the state before or after."""
        data = {"version": 1, "experiment": self.experiment, "stop": self.stop, "tries": [_json(t) for t in self.tries]}
        atomic_file.replace(self.folder / FILE, json.dumps(data, indent=2, ensure_ascii=False) + "\n")

    def file_of(self, t: Try) -> Path:
        """The run file of a try."""
        return self.folder / t.name / "run.moe"


def _json(t: Try) -> dict[str, Any]:
    return {"name": t.name, "codes": dict(t.codes), "change": t.change, "id": t.id, "row": t.row}


def opened(folder: Path, experiment: str) -> Way | Diagnostic:
    """Open the way in a folder, or begin one; the folder must be new, or hold one of the same experiment."""
    file = folder / FILE
    if not file.is_file():
        if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
            return _wrong(f"{folder} exists and holds no tuning", "name a new folder with -o")
        folder.mkdir(parents=True, exist_ok=True)
        return Way(folder, experiment)
    try:
        data = foreign_json.loads(file.read_text(encoding="utf-8"))
        way = Way(folder, data["experiment"], [Try(**t) for t in data["tries"]])
    except (OSError, ValueError, KeyError, TypeError) as problem:
        return _wrong(f"{file} cannot be read: {problem}", "name a new folder with -o")
    if way.experiment != experiment:
        text = f"{folder} tunes experiment {way.experiment}, and the file is experiment {experiment}"
        return _wrong(text, "name another folder with -o, or give the file that it began with")
    return way


def _wrong(text: str, help: str) -> Diagnostic:
    return error("tune.folder", text, help=help)
