"""Print a diagnosis from its JSON."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

from attrs import asdict

from moedsl.diagnose import scan
from moedsl.diagnose.edit import Attempt, Compiled, changes, edits, figures
from moedsl.diagnose.scan import Failure, Report
from moedsl.facts.axes import LAYOUT, show
from moedsl.support.text import counted, wrapped

Json = dict[str, Any]
TRY = (
    "search the log for the first `Error` above it: later ones are often consequences",
    "`moedsl verify RECIPE` asks the real Megatron Bridge about the configuration, without a GPU",
    "declare the message as a `symptom` in a rules block, and give that file with --run, so that it is known next time",
)
"""Advice for a log in which nothing is recognised."""


def to_json(
    r: Report, attempts: Mapping[str, Sequence[Attempt]], remarks: Mapping[str, str] = MappingProxyType({})
) -> Json:
    """Write the report as JSON, with `attempts` and `remarks` by the id of a symptom if there is a run file."""
    error = {"line": r.last_error[0], "text": r.last_error[1]} if r.last_error else None
    first = asdict(r.first_failure, filter=lambda a, _: a.name != "from_rank") if r.first_failure else None
    found: list[Json] = []
    for s in r.sightings:
        entry: Json = {"id": s.rule.id, "line": s.line, "text": s.text, "count": s.count, "ranks": list(s.ranks)}
        if s.details:
            entry["details"] = dict(s.details)
        entry |= {"cause": s.rule.because, "confirm": s.rule.confirm, "fix": s.rule.fix, "edits": edits(s.rule.fix)}
        entry["cite"] = list(s.rule.cites)
        if remark := remarks.get(s.rule.id):
            entry["remark"] = remark
        if s.rule.id in attempts:
            entry["runs"] = [
                {"run": a.run, "compiled": _compiled(a.compiled) if a.compiled else None, "failures": dict(a.failures)}
                for a in attempts[s.rule.id]
            ]
        found.append(entry)
    return {"version": 1, "log": r.name, "lines": r.lines, "first_failure": first, "symptoms": found,
            "last_error": error}  # fmt: skip


def _compiled(p: Compiled) -> Json:
    changed = changes(p.before, p.after) if p.before else {}
    return {
        "edit": p.edit,
        "all_else_as_before": p.held,
        "changes": {k: {"before": a, "after": b} for k, (a, b) in changed.items()},
        "layout": p.after.layout.to_json(),
        "before": figures(p.before) if p.before else None,
        "after": figures(p.after),
    }


def text(r: Json) -> str:
    """Print the diagnosis."""
    n = len(r["symptoms"])
    head = [f"{r['log']}: {counted(r['lines'], 'line', ',')}, {n or 'no'} known symptom{'s' * (n != 1)}"]
    if r["first_failure"]:
        head.append(_paragraph("first to fail: ", scan.failure_text(Failure(**r["first_failure"]))))
    parts = [head, *(_symptom(s, r["log"]) for s in r["symptoms"])]
    if not r["symptoms"]:
        error = r["last_error"]
        if r["first_failure"]:
            lines = ["Its cause is not known. What to try", *(_paragraph("  - ", t) for t in TRY[1:])]
        elif error is None:
            lines = ["No line looks like an error either."]
        else:
            lines = [f"The last line that looks like an error, {r['log']}:{error['line']}"]
            lines += [_paragraph("  ", error["text"]), "What to try", *(_paragraph("  - ", t) for t in TRY)]
        parts.append(lines)
    return "\n\n".join("\n".join(part) for part in parts) + "\n"


def _symptom(s: Json, log: str) -> list[str]:
    lines = [s["id"], _paragraph(f"  {log}:{s['line']}  ", s["text"])]
    if s["count"] > 1:
        spans: list[list[int]] = []  # ranks as ranges: 0-3, 7
        for r in s["ranks"]:
            if spans and spans[-1][1] == r - 1:
                spans[-1][1] = r
            else:
                spans.append([r, r])
        ranges = ", ".join(f"{a}-{b}" if a != b else str(a) for a, b in spans)
        ranks = f", rank{'s' * (len(s['ranks']) > 1)} {ranges}" if ranges else ""
        lines.append(f"  on {s['count']:,} lines{ranks}")
    named = ", ".join(f"{name.replace('_', ' ')} {value}" for name, value in s.get("details", {}).items())
    rows = {"named": named, **{name: s[name] for name in ("cause", "confirm", "fix")}, "source": "; ".join(s["cite"])}
    lines += [_paragraph(f"  {name:<9}", value) for name, value in rows.items() if value]
    lines += [_paragraph("  remark   ", s["remark"])] if "remark" in s else []
    for run in s.get("runs", []):
        p = run["compiled"]
        if p is None:
            # each reason once, after the edits that it refuses
            refused: dict[str, list[str]] = {}
            for edit, why in run["failures"].items():
                refused.setdefault(why, []).append(f"`{edit}`")
            failures = "; ".join(f"{', '.join(found)}: {why}" for why, found in refused.items())
            outcome = failures or "no statement of a run file fixes this"
        else:
            outcome = f"`{p['edit']}`{', all else as before' if p['all_else_as_before'] else ''}: {_became(p)}"
        lines.append(_paragraph(f"  {'compiles' if p else 'none':<9}", f"{run['run']}: {outcome}"))
    return lines


def _became(p: Json) -> str:
    """What an edit changes, and the estimate with it."""
    a, b = p["after"], p["before"]
    changed = ", ".join(
        f"{k} {'not set' if v['before'] is None else show(v['before'])} -> {show(v['after'])}"
        for k, v in p["changes"].items()
    )
    new = " ".join(f"{k}={p['layout'][k]}" for k in LAYOUT if k != "edp")
    was_time, was_peak = (f" (was {b['step_time_s']:.2f})", f" (was {b['peak_gib']:.1f})") if b else ("", "")
    return f"{changed or new}; {a['step_time_s']:.2f} s a step{was_time}, {a['peak_gib']:.1f} GiB{was_peak}"


def _paragraph(head: str, text: str) -> str:
    return wrapped(text, head, " " * 11, width=110)
