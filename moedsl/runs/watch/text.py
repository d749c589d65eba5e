"""Print what is known of runs from its JSON."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from moedsl.support.text import counted, duration, table, wrapped

Json = Mapping[str, Any]
SHARES = {"trains": "trains", "stops": "saves and other stops", "repeats": "repeated steps", "returns": "starts"}
"""The shares of the time in words."""


def text(runs: Sequence[Json]) -> str:
    """Print every run."""
    return "\n".join("\n".join(_run(r)) + "\n" for r in runs)


def _run(r: Json) -> Iterator[str]:
    yield f"{r['name']}: {r['state']}"
    yield from (f"  {line}" for line in _progress(r))
    yield from (f"  {line}" for line in table(_figures(r), "lr")) if r["step_time_s"] else ()
    yield from (_row("goodput", line) for line in _goodput(r))
    yield from (_row("straggler", straggler(s)) for s in r["stragglers"])
    yield from (_row("warning", w["text"]) for w in r["warnings"])
    for alarm in r["alarms"]:
        yield from _alarm(alarm)


def _progress(r: Json) -> Iterator[str]:
    if r["jobs"] is not None:
        yield f"{'jobs':<11}{_jobs(r['jobs'])}"
    if r["iteration"] is None:
        yield f"{'step':<11}no iteration line yet"
        return
    left = f", {duration(r['left_s'])} left" if r["left_s"] else ""
    ago = f", {duration(r['silent_s'])} ago" if r["silent_s"] >= 1 else ""
    yield f"{'step':<11}{r['iteration']:,} of {r['of']:,} ({r['iteration'] / r['of']:.1%}){ago}{left}"
    if r["loss"]:
        before = f" ({r['loss']['before']:.4g} at step {r['loss']['before_at']:,})"
        norm = "" if r["grad_norm"] is None else f", gradient norm {r['grad_norm']:.3g}"
        yield f"{'loss':<11}{r['loss']['now']:.4g}{before if r['loss']['before_at'] < r['loss']['at'] else ''}{norm}"


def _jobs(jobs: Sequence[Json]) -> str:
    """Count the jobs by their states, and name those that run."""
    running = [job["number"] for job in jobs if job["state"] == "RUNNING"]
    states = ", ".join(f"{n} {state}" for state, n in Counter(job["state"] for job in jobs).items())
    return states + (f" ({' '.join(running)})" if running else "")


def _figures(r: Json) -> list[tuple[str, ...]]:
    plan, times = r["predicted"] or {}, r["step_time_s"]
    interval = plan.get("step_time_interval_s")
    wide = f" ({_seconds(interval[0])} to {_seconds(interval[1])})" if interval else ""
    rows = [("", "now", "planned")]
    rows.append(("s a step", _seconds(times["median"]), _figure(plan.get("step_time_s"), _seconds) + wide))
    for name, key, form in (
        ("useful tokens/s/GPU", "useful_tokens_per_s_per_gpu", ",.0f"), ("TFLOPS/GPU", "tflops_per_gpu", ",.0f"),
        ("peak GiB", "peak_gib", ".1f"),
    ):  # fmt: skip
        if r[key] is not None:
            rows.append((name, format(r[key], form), _figure(plan.get(key), lambda v, form=form: format(v, form))))
    return [row if r["predicted"] else row[:2] for row in rows]


def _seconds(value: float) -> str:
    return f"{value:.3f}" if value < 1 else f"{value:.2f}"


def _figure(value: float | None, write: Any) -> str:
    return "" if value is None else write(value)


def _goodput(r: Json) -> Iterator[str]:
    g, saves = r["goodput"], r["saves"]
    counts = [counted(r["attempts"], "start")]
    counts += [f"{counted(len(saves), 'save')}, the last of step {saves[-1]:,}"] if saves else []
    if g is not None:
        planned = (r["predicted"] or {}).get("goodput")
        parts = [f"{g[name]:.1%} {words}" for name, words in SHARES.items() if name != "trains" and g[name] >= 0.0005]
        yield (
            f"{g['trains']:.1%} of {duration(g['elapsed_s'])}"
            + (f", {planned:.1%} planned" if planned else "")
            + (f"; {', '.join(parts)}" if parts else "")
            + f"; {', '.join(counts)}"
        )
    elif r["attempts"]:
        yield f"unknown without times of the lines; {', '.join(counts)}"


def straggler(s: Json) -> str:
    """Write a slow node in one line."""
    ranks = f"rank{'s' * (len(s['ranks']) > 1)} {', '.join(map(str, s['ranks']))}"
    often = f"in {s['in_reports']} of {counted(s['reports'], 'report')}, the last after step {s['at_iteration']:,}"
    return f"{s['node']}, {ranks}, {often}: {s['because']}"


def _alarm(alarm: Json) -> Iterator[str]:
    place = f" {alarm['log']}:{alarm['line']}" if alarm["line"] else f" {alarm['log']}" if alarm["log"] else ""
    if alarm["earlier"]:
        yield _row("earlier", f"{alarm['id']}{place}")
        return
    yield _row("ALARM", f"{alarm['id']}{place}")
    rows = {"": alarm["text"], "cause: ": alarm["cause"], "fix: ": alarm["fix"]}
    yield from (wrapped(name + value, " " * 15, " " * 17) for name, value in rows.items() if value)


def _row(name: str, value: str) -> str:
    return wrapped(value, f"  {name:<11}", " " * 13)
