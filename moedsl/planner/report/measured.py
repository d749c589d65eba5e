"""Draw what was measured: the step next to the predicted one, one step of each stage, and memory over time.

The figures are those that `moedsl profile --json` and `moedsl memory --json` print.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from attrs import frozen

from moedsl.support import foreign
from moedsl.support.diagnostics import Diagnostic, error
from moedsl.support.foreign import text_of
from moedsl.support.svg import shares

Json = Mapping[str, Any]
BLOCKS = (("compute", "#3b6fb6"), ("communication", "#c9803a"), ("copies", "#5a9a5a"))
"""The blocks of a trace from top to bottom, with their colours."""
NEAREST = "nearest"
"""How `moedsl memory` knows a stage that is only a guess."""
DRAWN = 8
"""The most traces that are all drawn."""


@frozen
class Measured:
    """The JSON of a profile and of a memory snapshot, if given."""

    profile: Json | None = None
    memory: Json | None = None

    def view(self, name: str) -> dict[str, Any] | None:
        """What the page of the run of that name draws."""
        if self.profile is None and self.memory is None:
            return None
        return {
            "tables": _tables(self.profile, name),
            "stages": [_stage(t) for t in _drawn(self.profile)],
            "blocks": BLOCKS,
            "memory": [] if self.memory is None else [_curve(d, name) for d in self.memory["devices"]],
        }


NOTHING = Measured()


def read(profile: str | None, memory: str | None) -> Measured | Diagnostic:
    """Read the files; each is drawn once, so that a file without a figure is refused before the page is made."""
    each: list[Json | None] = []
    for path, command in ((profile, "profile"), (memory, "memory")):
        try:
            each.append(None if path is None else foreign.load_json(text_of(Path(path))))
            Measured(*each).view("")
        except FileNotFoundError:
            return _wrong(command, f"{path} does not exist")
        except OSError as problem:
            return _wrong(command, f"{path} cannot be read: {problem.strerror or problem}")
        except (ValueError, LookupError, TypeError, AttributeError) as problem:
            said = f"{type(problem).__name__} {problem}"
            return _wrong(command, f"{path} is not what `moedsl {command} --json` prints: {said}")
    return Measured(*each)


def _wrong(command: str, text: str) -> Diagnostic:
    help = f"write it with `moedsl {command} ... --run run.moe --json > {command}.json`"
    return error("profile.printed", text, help=help)


def _drawn(profile: Json | None) -> Sequence[Json]:
    """The traces whose step is drawn: all, or of too many one of each stage."""
    if profile is None:
        return ()
    ranks: Sequence[Json] = profile["ranks"]
    return ranks if len(ranks) <= DRAWN else profile["parts"]


def _tables(profile: Json | None, name: str) -> list[Json]:
    """The step by wall and by part, predicted and measured."""
    plans = {p["run"]: p for p in (profile or {}).get("plans", ())}
    return [_table(plans[name][key], by) for key, by in (("walls", "wall"), ("table", "part")) if name in plans]


def _table(lines: Sequence[Json], by: str) -> Json:
    """Bars as shares of the longest, and their ticks."""
    longest = max((line[k] or 0.0 for line in lines for k in ("predicted_s", "measured_s")), default=1.0)
    drawn = [
        {**line, "name": line[by], "predicted_share": line["predicted_s"] / longest * 100,
         "measured_share": (line["measured_s"] or 0.0) / longest * 100}
        for line in lines
    ]  # fmt: skip
    return {"by": by, "rows": drawn, "ticks": shares(longest)}


def _stage(trace: Json) -> dict[str, Any]:
    """One step of a trace: a row of boxes for each block."""
    line = trace["timeline"]
    step = line["step_s"]
    boxes = [
        {"row": row, "left": a * 1000, "width": (b - a) * 1000, "colour": colour,
         "title": f"{name}, {a * step:.4f} to {b * step:.4f} s"}
        for row, (name, colour) in enumerate(BLOCKS)
        for a, b in line[name]
    ]  # fmt: skip
    return {"trace": trace["trace"], "rank": trace["rank"], "step_s": step, "ticks": shares(step), "boxes": boxes}


def _curve(device: Json, name: str) -> dict[str, Any]:
    """Memory over the history, as a line in 1000 x 200, with the peak, ticks, and the value under each place."""
    gibs, peak = device["over_time_gib"], max(device["peak_gib"], 1e-9)
    step = 1000 / max(len(gibs) - 1, 1)
    return {
        "device": device["device"],
        "snapshot": device["snapshot"] + _stage_of(device, name),
        "peak": device["peak_gib"],
        "line": " ".join(f"{i * step:.1f},{_height(gib / peak):.1f}" for i, gib in enumerate(gibs)),
        "across": shares(device["events"]),
        "upwards": [{"at": _height(t["at"] / 100), "text": t["text"]} for t in shares(peak)],
        "dots": [{"x": (i - 0.5) * step, "width": step, "gib": gib} for i, gib in enumerate(gibs)],
    }


def _stage_of(device: Json, name: str) -> str:
    """Name the stage of a snapshot, if it is known."""
    plans = {p["run"]: p for p in device.get("plans", ()) if p.get("stage_by", NEAREST) != NEAREST}
    return f", stage {plans[name]['stage']}" if name in plans else ""


def _height(share: float) -> float:
    return 195 - share * 190
