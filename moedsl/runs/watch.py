"""Report the current state of a run as JSON, as text, and as an HTML page that reloads itself."""

from __future__ import annotations

import math
import statistics
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import jinja2
from attrs import asdict, frozen

from moedsl.diagnose import scan
from moedsl.diagnose.log_lines import Step
from moedsl.facts.units import GIB
from moedsl.planner.estimate import Interval
from moedsl.runs.results.gather import Given, Numbers, Run, numbers
from moedsl.runs.results.measure import (
    BATCH,
    Attempt,
    Timed,
    batches,
    contradictions,
    predicted,
    spread_of,
    warning_texts,
)
from moedsl.runs.watch_logs import RECENT, Watched, origin, pace, spent, stragglers
from moedsl.support import svg
from moedsl.support.text import counted, duration, table, visible, wrapped

Json = dict[str, Any]
WAITING, TRAINING, SILENT, FINISHED, ENDED = "waiting", "training", "silent", "finished", "ended"
SILENT_S, SILENT_LINES = 120.0, 10
"""A run is silent after this many seconds without a line, if that is also this many of its usual intervals between
lines."""
EARLIER_S = 60.0
"""A log belongs to an earlier start if another log has lines that are this many seconds newer."""
SLOW_LINES = 10
"""The fewest recent lines from which a run can be called slower than its plan."""
SHARES = {"trains": "trains", "stops": "saves and other stops", "repeats": "repeated steps", "returns": "starts"}
"""The labels of the time shares (`Spent`)."""


def view(run: Watched) -> Json:
    """Return the JSON object that `--json` prints for a run."""
    attempts, plan, logs = run.attempts(), run.plan, list(run.logs.values())
    now = attempts[-1] if attempts else None
    quiet = max(0.0, time.time() - run.changed) if run.changed else 0.0
    is_running = any(job.state == "RUNNING" for job in run.jobs or ())
    state = _state(run, now, quiet, is_running)
    n = next((n for n in numbers([Run("", (), plan)], Given()) if isinstance(n, Numbers)), None) if plan else None
    lines = now[-RECENT:] if now else ()
    of_batch = batches([lines[::-1]])[:1]  # steps of another batch are not comparable
    recent = [s for s in lines if s.global_batch in (None, *of_batch)]
    batch = next(iter(of_batch), n.global_batch if n else None)
    timed = [Timed(s.seconds, batch, s.tflops) for s in recent] if batch else []
    rate = n.useful_rate(statistics.median(t.seconds for t in timed), timed[-1].global_batch) if n and timed else None
    tflops = [s.tflops for s in recent if s.tflops]
    # The batches known from the first line of each attempt and the recent lines, without reading every line; newest
    # last
    stated = batches([lines[::-1], [a[0] for a in reversed(attempts)]])[::-1]
    warnings = contradictions(plan, n, stated, [timed]) if n else []
    if run.damaged:
        warnings = [{"id": "plan", "text": "; ".join([run.damaged.message, *run.damaged.help])}]
    expected = None if warning_texts({"warnings": warnings}, (BATCH,)) else plan
    interval = expected.estimate.interval if expected else None
    began = min((log.began for log in logs if log.attempts and log.began is not None), default=math.inf)
    time_spent = spent(attempts, began, quiet if is_running else 0.0)
    with_loss = [s for s in lines if s.loss is not None]
    last = now[-1] if now else None
    slow = [report for log in logs for report in log.slow]
    return {
        "name": run.name,
        "state": state,
        "jobs": None if run.jobs is None else [job.to_json() for job in run.jobs],
        "logs": [log.feed.name for log in logs],
        "silent_s": quiet if now else None,
        "attempts": len(attempts),
        "iteration": last and last.iteration,
        "of": last and last.of,
        "left_s": (now[-1].of - now[-1].iteration) * pace(now) if now and state in (TRAINING, SILENT) else None,
        "loss": {"now": with_loss[-1].loss, "at": with_loss[-1].iteration, "before": with_loss[0].loss,
                 "before_at": with_loss[0].iteration} if with_loss else None,
        "grad_norm": last and last.grad_norm,
        "step_time_s": spread_of([s.seconds for s in recent]),
        "last_step_time_s": recent[-1].seconds if recent else None,
        "useful_tokens_per_s_per_gpu": rate,
        "useful_tokens_per_s": rate * n.gpus if rate and n else None,
        "tflops_per_gpu": statistics.median(tflops) if tflops else None,
        "peak_gib": max((log.peak / GIB for log in logs if log.peak), default=None),
        "predicted": expected and {
            **predicted(expected),
            "step_time_interval_s": [interval.lower_s, interval.upper_s] if interval else None,
            "goodput": expected.checkpoints.goodput.trains if expected.checkpoints else None,
        },
        # Shares of the time since the first time in a log
        "goodput": time_spent and {"elapsed_s": time_spent.elapsed,
                                   **{name: getattr(time_spent, name) / time_spent.elapsed for name in SHARES}},
        "saves": sorted({i for log in logs for i in log.saves}),
        "stragglers": [asdict(s) for s in stragglers(slow, plan.device.gpus_per_node if plan else None)],
        "warnings": warnings,
        "alarms": [asdict(alarm) for alarm in _alarms(run, interval, now, state, quiet, recent)],
    }  # fmt: skip


def _state(run: Watched, now: Attempt | None, quiet: float, is_running: bool) -> str:
    if now is not None and now[-1].iteration >= now[-1].of:
        return FINISHED
    if run.jobs is not None and all(job.ended for job in run.jobs):
        done = now is None and all(job.state == "SUCCEEDED" for job in run.jobs)  # an import trains nothing
        return FINISHED if done else ENDED
    if now is None or (run.jobs is not None and not is_running):
        return WAITING
    # Silence is normal for several intervals between lines, or for two checkpoint saves
    covers = now[-1].iteration - (now[-2].iteration if len(now) > 1 else origin(now))
    saving = run.plan.checkpoints.blocked_s if run.plan and run.plan.checkpoints else 0.0
    return SILENT if quiet > max(SILENT_S, SILENT_LINES * pace(now) * covers, 2 * saving) else TRAINING


@frozen
class Alarm:
    """A problem of a run, or of an `earlier` start of it; `log` and `line` say where, if it was found in a log."""

    id: str
    text: str
    log: str | None = None
    line: int | None = None
    count: int = 1
    cause: str | None = None
    fix: str | None = None
    earlier: bool = False


def _alarms(
    run: Watched, interval: Interval | None, now: Attempt | None, state: str, quiet: float, recent: Sequence[Step]
) -> Iterator[Alarm]:
    """Yield a run's alarms: silence and slow steps, then what `diagnose` finds in its logs, the newest log first."""
    if state == SILENT:
        yield Alarm("silent", f"no new line for {duration(quiet)}")
    if interval and len(recent) >= SLOW_LINES:
        middle = statistics.median(s.seconds for s in recent)
        if middle > interval.upper_s:
            yield Alarm("slow", f"{middle:.2f} s a step; the plan has at most {interval.upper_s:.2f}")
    for log in sorted(run.logs.values(), key=lambda log: -(log.feed.changed or 0.0)):
        earlier = (log.feed.changed or 0.0) < (run.changed or 0.0) - EARLIER_S
        report = log.scan.report(log.feed.name)
        if report.first_failure:
            yield Alarm("failed_rank", scan.failure_text(report.first_failure), report.name, earlier=earlier)
        for s in report.alarms:
            yield Alarm(s.rule.id, s.text, report.name, s.line, s.count, s.rule.because, s.rule.fix, earlier)
        if state == ENDED and not earlier and not report.standing and report.last_error:
            line, text = report.last_error
            yield Alarm("unknown_error", text, report.name, line)


def text(runs: Sequence[Json]) -> str:
    """Format every run as text."""
    return "\n".join("\n".join(_lines(r)) + "\n" for r in runs)


def _lines(r: Json) -> Iterator[str]:
    yield f"{r['name']}: {r['state']}"
    if r["jobs"] is not None:
        running = [job["number"] for job in r["jobs"] if job["state"] == "RUNNING"]
        states = ", ".join(f"{n} {state}" for state, n in Counter(job["state"] for job in r["jobs"]).items())
        yield f"  {'jobs':<11}{states}" + (f" ({' '.join(running)})" if running else "")
    if r["iteration"] is None:
        yield f"  {'step':<11}no iteration line yet"
    else:
        left = f", {duration(r['left_s'])} left" if r["left_s"] else ""
        ago = f", {duration(r['silent_s'])} ago" if r["silent_s"] >= 1 else ""
        yield f"  {'step':<11}{r['iteration']:,} of {r['of']:,} ({r['iteration'] / r['of']:.1%}){ago}{left}"
    if loss := r["loss"]:
        before = f" ({loss['before']:.4g} at step {loss['before_at']:,})" if loss["before_at"] < loss["at"] else ""
        norm = "" if r["grad_norm"] is None else f", gradient norm {r['grad_norm']:.3g}"
        yield f"  {'loss':<11}{loss['now']:.4g}{before}{norm}"
    plan, saves, shares = r["predicted"] or {}, r["saves"], r["goodput"]
    if r["step_time_s"]:  # a table of the recent steps next to the plan
        interval = plan.get("step_time_interval_s")
        wide = f" ({_seconds(interval[0])} to {_seconds(interval[1])})" if interval else ""
        planned = _seconds(plan["step_time_s"]) + wide if plan else ""
        rows = [("", "now", "planned"), ("s a step", _seconds(r["step_time_s"]["median"]), planned)]
        for name, key, form in (
            ("useful tokens/s/GPU", "useful_tokens_per_s_per_gpu", ",.0f"), ("TFLOPS/GPU", "tflops_per_gpu", ",.0f"),
            ("peak GiB", "peak_gib", ".1f"),
        ):  # fmt: skip
            if r[key] is not None:
                rows.append((name, format(r[key], form), format(plan[key], form) if plan else ""))
        yield from (f"  {line}" for line in table([row if plan else row[:2] for row in rows], "lr"))
    counts = counted(r["attempts"], "start")
    counts += f", {counted(len(saves), 'save')}, the last of step {saves[-1]:,}" if saves else ""
    if shares is not None:
        parts = [f"{shares[n]:.1%} {words}" for n, words in SHARES.items() if n != "trains" and shares[n] >= 0.0005]
        trains = f"{shares['trains']:.1%} of {duration(shares['elapsed_s'])}"
        trains += f", {plan['goodput']:.1%} planned" if plan.get("goodput") else ""
        yield _row("goodput", "; ".join([trains, *([", ".join(parts)] if parts else []), counts]))
    elif r["attempts"]:
        yield _row("goodput", f"unknown without times of the lines; {counts}")
    for s in r["stragglers"]:
        ranks = f"rank{'s' * (len(s['ranks']) > 1)} {', '.join(map(str, s['ranks']))}"
        often = f"in {s['in_reports']} of {counted(s['reports'], 'report')}, the last after step {s['at_iteration']:,}"
        yield _row("straggler", f"{s['node']}, {ranks}, {often}: {s['because']}")
    yield from (_row("warning", w["text"]) for w in r["warnings"])
    for alarm in r["alarms"]:
        line = f":{alarm['line']}" if alarm["line"] else ""
        place = f" {alarm['log']}{line}" if alarm["log"] else ""
        yield _row("earlier" if alarm["earlier"] else "ALARM", f"{alarm['id']}{place}")
        details = {} if alarm["earlier"] else {"": alarm["text"], "cause: ": alarm["cause"], "fix: ": alarm["fix"]}
        yield from (wrapped(name + value, " " * 15, " " * 17) for name, value in details.items() if value)


def _row(name: str, value: str) -> str:
    return wrapped(value, f"  {name:<11}", " " * 13)


def _seconds(value: float) -> str:
    return f"{value:.3f}" if value < 1 else f"{value:.2f}"


SIGN = '<meta name="generator" content="moedsl watch">'
"""The tag that marks a page as written by `moedsl watch`."""
POINTS = 500
"""The most points of a curve; with more lines, each point is the mean of several."""
WIDTH, HEIGHT = 1000, 160


def page(runs: Sequence[Watched], views: Sequence[dict[str, Any]], every: float) -> str:
    """Return one HTML document, which loads nothing from elsewhere."""
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(Path(__file__).parent), undefined=jinja2.StrictUndefined, autoescape=True
    )
    shown = list[dict[str, Any]]()
    for run, view in zip(runs, views, strict=True):
        # The loss and the seconds of a step over the iterations, a line for each attempt
        attempts, curves = run.attempts(), list[dict[str, Any]]()
        losses = [[(s.iteration, s.loss) for s in a if s.loss is not None] for a in attempts]
        times = [[(s.iteration, s.seconds) for s in a[1:]] for a in attempts]
        for name, each in (("loss", losses), ("s a step", times)):
            lines = [thinned([(x, y) for x, y in line if math.isfinite(y)]) for line in each]
            points = [p for line in lines for p in line]
            if len(points) > 1:
                (left, right), (low, high) = ((min(v), max(v)) for v in zip(*points, strict=True))
                area = svg.Area(0.0, 0.0, WIDTH, HEIGHT, (left, low), (right, high))
                paths = [svg.polyline(area.at(x, y) for x, y in line) for line in lines]
                curves.append({"name": name, "paths": paths, "left": f"{left:,.0f}", "right": f"{right:,.0f}",
                               "low": f"{low:.4g}", "high": f"{high:.4g}"})  # fmt: skip
        shown.append({"name": visible(view["name"]), "text": visible(text([view])), "curves": curves})
    return environment.get_template("watch.html.j2").render(
        runs=shown, every=math.ceil(every), width=WIDTH, height=HEIGHT
    )


def thinned(points: Sequence[tuple[float, float]]) -> list[tuple[float, float]]:
    """Return at most `POINTS` points, each the mean of consecutive points."""
    size = math.ceil(len(points) / POINTS) or 1
    groups = [points[i : i + size] for i in range(0, len(points), size)]
    return [(sum(x for x, _ in g) / len(g), sum(y for _, y in g) / len(g)) for g in groups]
