"""Keep the way of a tuning in a folder: what was tried, its job and its result, so that a killed one goes on."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from math import isfinite
from pathlib import Path
from typing import Any

from attrs import define, field

from moedsl.facts import axes
from moedsl.runs.results.compare import RATE
from moedsl.runs.tune.evidence import REFUSED, Codes
from moedsl.support import files, foreign
from moedsl.support.diagnostics import Diagnostic, error
from moedsl.support.files import stamp, write_all, written_by_us
from moedsl.support.foreign import text_of

FILE, RUN = "way.json", "run.moe"


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
    machines: str
    """The number and type of the GPUs, which all share."""
    tries: list[Try] = field(factory=list)
    stop: str | None = None
    """Why it ended."""
    table: str = ""
    """What was tried, as `moedsl next` prints it."""

    def save(self) -> None:
        """Write everything in one step, so that a kill leaves the state before or after."""
        shared = {"experiment": self.experiment, "machines": self.machines}
        data = {"version": 1, **shared, "stop": self.stop, "tries": [_json(t) for t in self.tries]}
        files.replace_file(self.folder / FILE, stamp(FILE, json.dumps(data, indent=2, ensure_ascii=False) + "\n"))

    @property
    def next_name(self) -> str:
        """The name of the next try."""
        return _name(len(self.tries))

    def file_of(self, t: Try) -> Path:
        """The run file of a try."""
        return self.folder / t.name / RUN


def _name(at: int) -> str:
    return f"{at + 1:02}"


def _json(t: Try) -> dict[str, Any]:
    return {"name": t.name, "codes": dict(t.codes), "change": t.change, "id": t.id, "row": t.row}


def opened(folder: Path, experiment: str, machines: str) -> Way | Diagnostic:
    """Open the way in a folder, or begin one; the folder must be new, or hold one of the same experiment on the same
    machines."""
    file = folder / FILE
    try:
        if not os.path.lexists(file):
            if os.path.lexists(folder) and (not folder.is_dir() or any(folder.iterdir())):
                return _wrong(f"{folder} exists and holds no tuning", _ANOTHER)
            folder.mkdir(parents=True, exist_ok=True)
            return Way(folder, experiment, machines)
        if file.is_symlink() or not file.is_file():
            return _wrong(f"{file} is not a file that `moedsl tune` wrote", _ANOTHER)
        text = text_of(file)
    except (OSError, ValueError) as problem:
        return _wrong(f"{file} cannot be read: {problem}", _ANOTHER)
    return _continued(folder, text, experiment, machines)


_ANOTHER = "name a new folder with -o"
_BEGAN = "name another folder with -o, or give the file that it began with"


def _continued(folder: Path, text: str, experiment: str, machines: str) -> Way | Diagnostic:
    """Read a way, whose entries are trusted only as `save` wrote them: they name the folders of the jobs."""
    file = folder / FILE
    if written_by_us(FILE, text) != "ours":
        return _wrong(f"{file} was not written by `moedsl tune`, or was edited since", _ANOTHER)
    try:
        data = foreign.load_json(text)
        way = Way(folder, data["experiment"], data["machines"], [_try(**t) for t in data["tries"]])
    except (ValueError, TypeError, LookupError):
        return _wrong(f"{file} is not as `moedsl tune` writes it", _ANOTHER)
    if [t.name for t in way.tries] != [_name(i) for i in range(len(way.tries))]:
        return _wrong(f"{file} names jobs that `moedsl tune` does not", _ANOTHER)
    if way.experiment != experiment:
        text = f"{folder} tunes experiment {way.experiment}, and the file is experiment {experiment}"
        return _wrong(text, _BEGAN)
    if way.machines != machines:
        return _wrong(f"{folder} measures steps on {way.machines}, and the file is for {machines}", _BEGAN)
    return way


def _try(name: Any, codes: Any, change: Any, id: Any, row: Any) -> Try:
    """Make a try of what a file says; raises ValueError, TypeError or LookupError if a value is of another kind."""
    if {*codes} != {*axes.BY_NAME} or not all(_is_code(axes.BY_NAME[n], code) for n, code in codes.items()):
        raise ValueError("no layout")
    if change is not None and not (change["axis"] in axes.BY_NAME and {"from", "to"} <= {*change}):
        raise ValueError("no change")
    numbers = [change[n] for n in ("step_s", "peak_gib")] if change is not None else []
    if change is not None and change["gain"] is not None:
        numbers += [change[n] for n in ("gain", "low", "high")]
    if row is not None:
        rate = row[RATE]
        numbers += [row["useful_share"], row[REFUSED], *([rate["median"], rate["error"] or 1.0] if rate else [])]
        texts = [row["status"], row["cause"] or "", *(s["id"] for s in row["symptoms"])]
        if not all(isinstance(t, str) for t in texts) or row["useful_share"] <= 0 or (rate and rate["median"] <= 0):
            raise ValueError("no measurement")
    if not all(isfinite(n) for n in numbers) or not (id is None or isinstance(id, str)):
        raise ValueError("no number")
    return Try(name, codes, change, id, row)


def _is_code(axis: axes.Axis, code: Any) -> bool:
    """Whether an axis has a value of that number."""
    most = {"int": 1 << 20, "set": (1 << len(axis.words)) - 1, "enum": len(axis.words) - 1}.get(axis.kind, 1)
    return type(code) is int and (axis.kind == "int") <= code <= most


def write(folder: Path, files: Mapping[str, str]) -> Diagnostic | None:
    """Write files of a way into a folder, or say which one there is not as `moedsl tune` wrote it."""
    refused = write_all(folder, files)
    return _wrong(refused[0].message, "move it away, and the same command goes on") if refused else None


def _wrong(text: str, help: str) -> Diagnostic:
    return error("tune.folder", text, help=help)
