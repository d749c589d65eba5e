"""Write a diagnosis as JSON, and print it from that."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

from attrs import asdict

from moedsl.diagnose import memory, messages, scan
from moedsl.diagnose.edit import Attempt, Compiled, changes, edits, figures, ran_out
from moedsl.diagnose.errors import Error
from moedsl.diagnose.messages import PACKAGES
from moedsl.diagnose.scan import Failure, Report
from moedsl.facts.axes import LAYOUT, show
from moedsl.planner.plan import Plan
from moedsl.rules.rule import Rule
from moedsl.support.text import counted, ranges, wrapped

Json = dict[str, Any]
TRY = (
    "search the log for the first `Error` above it: later ones are often consequences",
    "`moedsl verify RECIPE` asks the real Megatron Bridge about the configuration, without a GPU",
    "declare the message as a `symptom` in a rules block, and give that file with --run, so that it is known next time",
)
"""Advice for a log in which nothing is recognised."""


SHOWN = 5
"""The most errors that the text shows; JSON has all."""


def to_json(
    r: Report,
    attempts: Mapping[str, Sequence[Attempt]],
    remarks: Mapping[str, str] = MappingProxyType({}),
    rules: Sequence[Rule] = (),
    plan: Plan | None = None,
) -> Json:
    """Write the report as JSON; with a run file, `attempts` and `remarks` are given by symptom id.

    Each error has its place in NVIDIA's code, the `rules` that state what it checks, and the settings that it reads
    with their values in `plan`.
    """
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
        if ran_out(s.rule.id) and (short := memory.read([e.text for e in r.errors] + [s.text])):
            parts = memory.compare(short, plan) if plan else []
            entry["memory"] = {
                **asdict(short, filter=lambda _, value: value is not None),
                "missing": short.missing,
                "against_plan": [asdict(part) | {"above": part.above} for part in parts],
                "judgement": [*memory.judgement(short, parts, plan)],
            }
        if s.rule.id in attempts:
            entry["runs"] = [
                {
                    "run": a.run,
                    "compiled": _compiled(a.compiled) if a.compiled else None,
                    "failures": dict(a.failures),
                    **({"others": [_compiled(c) for c in a.others]} if a.others else {}),
                }
                for a in attempts[s.rule.id]
            ]
        found.append(entry)
    errors = [_error_json(e, rules, plan) for e in r.errors or r.unmarked()]
    step = {"lines": r.steps, "iteration": r.last.iteration, "of": r.last.of} if r.last else None
    return {"version": 1, "log": r.name, "lines": r.lines, "healthy": r.is_healthy, "steps": step,
            "first_failure": first, "symptoms": found, "errors": [e for e in errors if e["place"] or r.errors],
            "last_error": error}  # fmt: skip


def _error_json(e: Error, rules: Sequence[Rule], plan: Plan | None) -> Json:
    """Write an error with its place in NVIDIA's code, the check there, the settings it reads, and our rules on it."""
    places = messages.find(e)
    m = places[0] if places else None
    frame = next((f for f in reversed(e.frames) if messages.of_frame(f)), None)
    return {
        "line": e.line,
        "first_line": e.first_line or e.line,
        "ranks": list(e.ranks),
        "kind": e.kind,
        "text": e.text,
        "frame": asdict(frame) if frame else None,
        "place": asdict(m, filter=lambda a, _: a.name not in ("text", "names")) if m else None,
        "other_places": [p.place for p in places[1:]],
        "reads": [asdict(read) for read in messages.reads(m, e, plan)],
        "rules": messages.stating(rules, places),
    }


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
    if r["steps"]:
        where = f"iteration {r['steps']['iteration']:,} of {r['steps']['of']:,}"
        head.append(f"training goes on without findings, at {where}" if r["healthy"] else f"the last step: {where}")
    raised = [next((e for e in r["errors"] if e["place"] and _is_of(s, e)), None) for s in r["symptoms"]]
    parts = [head, *(_symptom(s, r["log"], e) for s, e in zip(r["symptoms"], raised, strict=True))]
    own = [e for e in r["errors"] if not any(_is_of(s, e) for s in r["symptoms"]) and (e["place"] or e["frame"])]
    parts += [_error(e, r["log"]) for e in own[:SHOWN]]
    if len(own) > SHOWN:
        parts.append([f"{len(own) - SHOWN} more errors, the last on line {own[-1]['line']:,}; --json has all"])
    if not r["symptoms"] and not own and not r["healthy"]:
        error = r["last_error"]
        if r["first_failure"]:
            lines = ["Its cause is not known. What to try", *(_paragraph("  - ", t) for t in TRY[1:])]
        elif error is None:
            lines = ["No line looks like an error, but no iteration line shows a run that trains either."]
        else:
            lines = [f"The last line that looks like an error, {r['log']}:{error['line']}"]
            lines += [_paragraph("  ", error["text"]), "What to try", *(_paragraph("  - ", t) for t in TRY)]
        parts.append(lines)
    elif r["healthy"] and not r["symptoms"]:
        parts.append(["No line after the last step looks like an error."])
    return "\n\n".join("\n".join(part) for part in parts) + "\n"


def _is_of(symptom: Json, error: Json) -> bool:
    """Whether a symptom was seen in the lines of an error."""
    return error["first_line"] <= symptom["line"] <= max(error["line"], error["first_line"])


def _error(e: Json, log: str) -> list[str]:
    """Print an error that no symptom matches, with its place."""
    place, frame = e["place"], e["frame"]
    if place:
        title = f"{PACKAGES[place['package']]}: {place['file']}, {place['function'] or 'the module itself'}"
    else:
        title = f"an error in {frame['file']}:{frame['line']}, {frame['function']}"
    kind = "" if e["kind"] in ("", "logged") else f"{e['kind']}: " if e["text"] else e["kind"]
    lines = [title, _paragraph(f"  {log}:{e['line']}  ", f"{kind}{e['text']}"[: scan.SHOWN])]
    if len(e["ranks"]) > 1:
        lines.append(f"  on {len(e['ranks'])} ranks, the first is rank {e['ranks'][0]}")
    if not place and frame["code"]:
        lines.append(_paragraph("  code     ", frame["code"]))
    return lines + _check(e)


def _check(e: Json) -> list[str]:
    """Print what the code at an error's place checks, the settings that it reads, and what to change."""
    place, out = e["place"], list[str]()
    if place and place["check"]:
        out.append(
            _paragraph("  check    ", f"{'needs' if place['kind'] == 'AssertionError' else 'refuses'} {place['check']}")
        )
    if e["reads"]:
        known = [f"{r['name']} is {show(r['value'])}" for r in e["reads"] if r["value"] is not None]
        out += [_paragraph("  here     ", ", ".join(known))] if known else []
        out.append(_paragraph("  change   ", ", ".join(f"`{r['statement']}`" for r in e["reads"])))
    if e["rules"]:
        out.append(_paragraph("  rule     ", ", ".join(e["rules"])))
    if place:
        *older, (release, (_, line)) = place["lines"].items()
        others = "".join(f"; {v}: line {b}" for v, (_, b) in older if b != line)
        also = f"; the same text in {', '.join(e['other_places'])}" if e["other_places"] else ""
        out.append(
            _paragraph("  raised by", f" {place['package']} {place['file']}:{line} (Bridge {release}){others}{also}")
        )
    return out


def _symptom(s: Json, log: str, raised: Json | None) -> list[str]:
    lines = [s["id"], _paragraph(f"  {log}:{s['line']}  ", s["text"])]
    if s["count"] > 1:
        ranks = f", rank{'s' * (len(s['ranks']) > 1)} {ranges(s['ranks'])}" if s["ranks"] else ""
        lines.append(f"  on {s['count']:,} lines{ranks}")
    named = ", ".join(f"{name.replace('_', ' ')} {value}" for name, value in s.get("details", {}).items())
    rows = {"named": named, **{name: s[name] for name in ("cause", "confirm", "fix")}, "source": "; ".join(s["cite"])}
    lines += [_paragraph(f"  {name:<9}", value) for name, value in rows.items() if value]
    lines += [_paragraph("  remark   ", s["remark"])] if "remark" in s else []
    lines += _check(raised) if raised else []
    lines += _memory(s["memory"]) if "memory" in s else []
    for run in s.get("runs", []):
        p = run["compiled"]
        if p is None:
            # print each reason once, after the edits to which it applies
            refused: dict[str, list[str]] = {}
            for edit, why in run["failures"].items():
                refused.setdefault(why, []).append(f"`{edit}`")
            failures = "; ".join(f"{', '.join(found)}: {why}" for why, found in refused.items())
            outcome = failures or "no statement of a run file fixes this"
        else:
            outcome = f"`{p['edit']}`{', all else as before' if p['all_else_as_before'] else ''}: {_became(p)}"
        lines.append(_paragraph(f"  {'compiles' if p else 'none':<9}", f"{run['run']}: {outcome}"))
        for other in run.get("others", []):
            lines.append(_paragraph("  or       ", f"{run['run']}: `{other['edit']}`: {_became(other)}"))
    return lines


def _memory(m: Json) -> list[str]:
    """Print the numbers in an out-of-memory message next to the plan's."""
    asked = f"{m['tried']:.2f} GiB asked for"
    asked += f", {m['free']:.2f} free: {m['missing']:.2f} missing" if "free" in m else ""
    held = [f"{name} {m[key]:.1f}" for key, name in _HELD.items() if key in m]
    lines = [_paragraph("  measured ", "; ".join([asked, *([", ".join(held) + " GiB"] if held else [])]))]
    for p in m["against_plan"]:
        over = f", {p['above']:.1f} above" if p["above"] > 0 else ""
        lines.append(
            f"  planned  {p['name']}: {p['lower']:.1f} to {p['upper']:.1f} GiB, measured {p['measured']:.1f}{over}"
        )
    return lines + [_paragraph("  likely   ", text) for text in m["judgement"]]


_HELD = {"allocated": "tensors", "graphs": "of them in graphs' pools", "unused": "unused in the allocator",
         "outside": "outside PyTorch", "total": "of"}  # fmt: skip


def _became(p: Json) -> str:
    """Write what an edit changes, and the new estimate."""
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
