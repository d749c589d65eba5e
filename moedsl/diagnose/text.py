"""Print a diagnosis from its JSON."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

from attrs import asdict

from moedsl.diagnose import scan
from moedsl.diagnose.edit import Attempt, Compiled, changes, edits, figures
from moedsl.diagnose.scan import Failure, Report, Sighting
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
    found = [_sighting(s, attempts.get(s.rule.id), remarks.get(s.rule.id)) for s in r.sightings]
    first = asdict(r.first_failure, filter=lambda a, _: a.name != "from_rank") if r.first_failure else None
    return {"version": 1, "log": r.name, "lines": r.lines, "first_failure": first, "symptoms": found,
            "last_error": error}  # fmt: skip


def _sighting(s: Sighting, attempts: Sequence[Attempt] | None, remark: str | None) -> Json:
    entry = {"id": s.rule.id, "line": s.line, "text": s.text, "count": s.count, "ranks": list(s.ranks)}
    named = {"details": dict(s.details)} if s.details else {}
    known = {"cause": s.rule.because, "confirm": s.rule.confirm, "fix": s.rule.fix, "edits": edits(s.rule.fix)}
    out: Json = {**entry, **named, **known, "cite": list(s.rule.cites), **({"remark": remark} if remark else {})}
    if attempts is not None:
        out["runs"] = [
            {"run": a.run, "compiled": _compiled(a.compiled) if a.compiled else None, "failures": dict(a.failures)}
            for a in attempts
        ]
    return out


def _compiled(p: Compiled) -> Json:
    before = figures(p.before) if p.before else None
    changed = {k: {"before": a, "after": b} for k, (a, b) in (changes(p.before, p.after) if p.before else {}).items()}
    return {
        "edit": p.edit,
        "all_else_as_before": p.held,
        "changes": changed,
        "layout": p.after.layout.to_json(),
        "before": before,
        "after": figures(p.after),
    }


def text(r: Json) -> str:
    """Print the diagnosis."""
    n = len(r["symptoms"])
    head = f"{r['log']}: {counted(r['lines'], 'line', ',')}, {n or 'no'} known symptom{'s' * (n != 1)}"
    first = (
        [_paragraph("first to fail: ", scan.failure_text(Failure(**r["first_failure"])))] if r["first_failure"] else []
    )
    parts = [_symptom(s, r["log"]) for s in r["symptoms"]] or [_nothing(r)]
    return "\n\n".join(["\n".join([head, *first]), *parts]) + "\n"


def _nothing(r: Json) -> str:
    if r["first_failure"]:
        return "\n".join(["Its cause is not known. What to try", *(_paragraph("  - ", t) for t in TRY[1:])])
    if r["last_error"] is None:
        return "No line looks like an error either."
    e = r["last_error"]
    return "\n".join([f"The last line that looks like an error, {r['log']}:{e['line']}", _paragraph("  ", e["text"]),
                      "What to try", *(_paragraph("  - ", t) for t in TRY)])  # fmt: skip


def _symptom(s: Json, log: str) -> str:
    lines = [s["id"], _paragraph(f"  {log}:{s['line']}  ", s["text"])]
    lines += [f"  on {s['count']:,} lines{_ranks(s['ranks'])}"] if s["count"] > 1 else []
    named = ", ".join(f"{name.replace('_', ' ')} {value}" for name, value in s.get("details", {}).items())
    rows = {"named": named, **{name: s[name] for name in ("cause", "confirm", "fix")}, "source": "; ".join(s["cite"])}
    lines += [_paragraph(f"  {name:<9}", value) for name, value in rows.items() if value]
    lines += [_paragraph("  remark   ", s["remark"])] if "remark" in s else []
    lines += [_paragraph(f"  {'compiles' if r['compiled'] else 'none':<9}", _run_text(r)) for r in s.get("runs", [])]
    return "\n".join(lines)


def _ranks(ranks: Sequence[int]) -> str:
    """Write ranks as ranges: 0-3, 7."""
    if not ranks:
        return ""
    spans: list[list[int]] = []
    for r in ranks:
        if spans and spans[-1][1] == r - 1:
            spans[-1][1] = r
        else:
            spans.append([r, r])
    return f", rank{'s' * (len(ranks) > 1)} " + ", ".join(f"{a}-{b}" if a != b else str(a) for a, b in spans)


def _run_text(run: Json) -> str:
    if run["compiled"] is None:
        return f"{run['run']}: {_failures(run['failures']) or 'no statement of a run file fixes this'}"
    p = run["compiled"]
    how = ", all else as before" if p["all_else_as_before"] else ""
    return f"{run['run']}: `{p['edit']}`{how}: {_became(p)}"


def _failures(failures: Mapping[str, str]) -> str:
    """Give each reason once, after the edits that it refuses."""
    refused = {why: [edit for edit, w in failures.items() if w == why] for why in failures.values()}
    return "; ".join(f"{', '.join(f'`{e}`' for e in edits)}: {why}" for why, edits in refused.items())


def _became(p: Json) -> str:
    a, b = p["after"], p["before"]
    was = (lambda k, f: f" (was {b[k]:{f}})") if b else (lambda k, f: "")
    changed = ", ".join(
        f"{k} {'not set' if v['before'] is None else show(v['before'])} -> {show(v['after'])}"
        for k, v in p["changes"].items()
    )
    new = " ".join(f"{k}={p['layout'][k]}" for k in LAYOUT if k != "edp")
    estimate = f"{a['step_time_s']:.2f} s a step{was('step_time_s', '.2f')}, {a['peak_gib']:.1f} GiB"
    return f"{changed or new}; {estimate}{was('peak_gib', '.1f')}"


def _paragraph(head: str, text: str) -> str:
    return wrapped(text, head, " " * 11, width=110)
