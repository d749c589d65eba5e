"""What is known of a run at this moment, as JSON, as text, and as a page that the browser loads again by itself."""

from __future__ import annotations

import math
import statistics
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import jinja2

from moedsl.diagnose import scan
from moedsl.facts.units import GIB
from moedsl.planner.plan import Plan
from moedsl.runs.results.gather import Given, Numbers, Run, numbers
from moedsl.runs.results.log import Step
from moedsl.runs.results.measure import BATCH, Timed, batches, contradictions, predicted, said, spread_of
from moedsl.runs.watch_logs import Attempt, Watched, spent, stragglers
from moedsl.support import svg
from moedsl.support.text import counted, duration, table, visible, wrapped

Json = dict[str, Any]
WAITING, TRAINING, SILENT, FINISHED, ENDED = "waiting", "training", "silent", "finished", "ended"
SILENT_S, SILENT_LINES = 120.0, 10
"""A run is silent after so many seconds, and so many times as long as from one of its lines to the next."""
EARLIER_S = 60.0
"""Seconds after which a log counts as that of an earlier start, if another one goes on."""
SLOW_LINES = 10
"""The lines from which a run can be called slower than its plan."""


def view(run: Watched) -> Json:
    """Make the object that `--json` prints of a run."""
    attempts = run.attempts()
    now = attempts[-1] if attempts else None
    quiet = max(0.0, time.time() - run.changed) if run.changed else 0.0
    state = _state(run, now, quiet)
    n, recent = _numbers(run.plan), _recent(now)
    warnings = contradictions(run.plan, n, _batches(attempts), [_timed(recent, n)]) if n else []
    if run.damaged:
        warnings = [{"id": "plan", "text": "; ".join([run.damaged.message, *run.damaged.help])}]
    expected = None if said({"warnings": warnings}, (BATCH,)) else run.plan
    return {
        "name": run.name,
        "state": state,
        "jobs": None if run.jobs is None else [job.to_json() for job in run.jobs],
        "logs": [log.feed.name for log in run.logs.values()],
        "silent_s": quiet if now else None,
        "attempts": len(attempts),
        **_progress(now, state),
        **_speed(recent, n),
        "peak_gib": max((log.peak / GIB for log in run.logs.values() if log.peak), default=None),
        "predicted": _predicted(expected),
        "goodput": _goodput(attempts, quiet if _is_running(run) else 0.0),
        "saves": sorted({i for log in run.logs.values() for i in log.saves}),
        "stragglers": stragglers(
            [f for log in run.logs.values() for f in log.slow], run.plan.device.gpus_per_node if run.plan else None
        ),
        "warnings": warnings,
        "alarms": list(_alarms(run, expected, now, state, quiet)),
    }


def _is_running(run: Watched) -> bool:
    return any(job.state == "RUNNING" for job in run.jobs or ())


def _state(run: Watched, now: Attempt | None, quiet: float) -> str:
    if now is not None and now.last.iteration >= now.last.of:
        return FINISHED
    if run.jobs is not None and all(job.ended for job in run.jobs):
        done = now is None and all(job.state == "SUCCEEDED" for job in run.jobs)  # nothing to train, as an import
        return FINISHED if done else ENDED
    if now is None or (run.jobs is not None and not _is_running(run)):
        return WAITING
    # The seconds without a line that are still normal: several lines, or two saves of a checkpoint
    covers = now.ends[-1] - (now.ends[-2] if len(now.ends) > 1 else now.origin)
    saving = run.plan.checkpoints.blocked_s if run.plan and run.plan.checkpoints else 0.0
    return SILENT if quiet > max(SILENT_S, SILENT_LINES * now.pace() * covers, 2 * saving) else TRAINING


def _progress(now: Attempt | None, state: str) -> Json:
    if now is None:
        return {"iteration": None, "of": None, "left_s": None, "loss": None, "grad_norm": None}
    left = now.last.of - now.last.iteration
    with_loss = [s for s in now.recent if s.loss is not None]
    loss = {"now": with_loss[-1].loss, "at": with_loss[-1].iteration, "before": with_loss[0].loss,
            "before_at": with_loss[0].iteration} if with_loss else None  # fmt: skip
    return {
        "iteration": now.last.iteration,
        "of": now.last.of,
        "left_s": left * now.pace() if state in (TRAINING, SILENT) else None,
        "loss": loss,
        "grad_norm": now.last.grad_norm,
    }


def _numbers(plan: Plan | None) -> Numbers | None:
    n = numbers([Run("", (), plan)], Given())[0] if plan else None
    return n if isinstance(n, Numbers) else None


def _batches(attempts: Sequence[Attempt]) -> list[int]:
    """The batches that are known without every line, the last one at the end: where each attempt began, and the recent
    ones."""
    steps = [*(a.first for a in attempts), *(s for a in attempts[-1:] for s in a.recent)]
    return batches([steps[::-1]])[::-1]


def _recent(now: Attempt | None) -> tuple[Step, ...]:
    """The recent lines with the batch of the last one: steps of another batch are other steps."""
    if now is None:
        return ()
    stated = batches([reversed(now.recent)])[:1]
    return tuple(s for s in now.recent if s.global_batch in (None, *stated))


def _timed(recent: Sequence[Step], n: Numbers) -> list[Timed]:
    batch = next((s.global_batch for s in recent if s.global_batch), n.global_batch)
    return [Timed(s.seconds, batch, s.tflops) for s in recent] if batch else []


def _speed(recent: Sequence[Step], n: Numbers | None) -> Json:
    """The recent lines: the middle and the ends of their step times, and the rates that follow."""
    timed = _timed(recent, n) if n else []
    rate = n.useful_rate(statistics.median(t.seconds for t in timed), timed[-1].global_batch) if n and timed else None
    tflops = [s.tflops for s in recent if s.tflops]
    return {
        "step_time_s": spread_of([s.seconds for s in recent]),
        "last_step_time_s": recent[-1].seconds if recent else None,
        "useful_tokens_per_s_per_gpu": rate,
        "useful_tokens_per_s": rate * n.gpus if rate and n else None,
        "tflops_per_gpu": statistics.median(tflops) if tflops else None,
    }


def _predicted(plan: Plan | None) -> Json | None:
    """The plan's figures, with the interval of its step and its goodput."""
    if plan is None:
        return None
    interval, saving = plan.estimate.interval, plan.checkpoints
    return {
        **(predicted(plan) or {}),
        "step_time_interval_s": [interval.lower_s, interval.upper_s] if interval else None,
        "goodput": saving.goodput.trains if saving else None,
    }


def _goodput(attempts: Sequence[Attempt], quiet: float) -> Json | None:
    """Shares of the time since the first one that a log names."""
    s = spent(attempts, quiet)
    if s is None:
        return None
    seconds = {"trains": s.trains, "stops": s.stops, "repeats": s.repeats, "returns": s.returns}
    return {"elapsed_s": s.elapsed, **{name: value / s.elapsed for name, value in seconds.items()}}


def _alarms(run: Watched, expected: Plan | None, now: Attempt | None, state: str, quiet: float) -> Iterator[Json]:
    """List what is wrong: of the run itself, and what `diagnose` knows of its logs; the newest log first."""
    if state == SILENT:
        yield _alarm("silent", f"no new line for {duration(quiet)}")
    if now is not None and now.nan is not None:
        yield _alarm("nan", f"loss or gradient is NaN at iteration {now.nan}")
    interval, recent = expected.estimate.interval if expected else None, _recent(now)
    if interval and len(recent) >= SLOW_LINES:
        middle = statistics.median(s.seconds for s in recent)
        if middle > interval.upper_s:
            yield _alarm("slow", f"{middle:.2f} s a step; the plan has at most {interval.upper_s:.2f}")
    for log in sorted(run.logs.values(), key=lambda log: -(log.feed.changed or 0.0)):
        earlier = (log.feed.changed or 0.0) < (run.changed or 0.0) - EARLIER_S
        report = log.scan.report(log.feed.name)
        if report.first_failure:
            yield _alarm("failed_rank", scan.failure_text(report.first_failure), log=report.name, earlier=earlier)
        for s in report.sightings:
            known = {"line": s.line, "count": s.count, "cause": s.rule.because, "fix": s.rule.fix}
            yield _alarm(s.rule.id, s.text, log=report.name, earlier=earlier, **known)
        if state == ENDED and not earlier and not report.sightings and report.last_error:
            line, text = report.last_error
            yield _alarm("unknown_error", text, log=report.name, line=line)


def _alarm(id: str, text: str, **more: Any) -> Json:
    blank = {"log": None, "line": None, "count": 1, "cause": None, "fix": None, "earlier": False}
    return {"id": id, "text": text, **blank, **more}


SHARES = {"trains": "trains", "stops": "saves and other stops", "repeats": "repeated steps", "returns": "starts"}
"""The shares of the time in words."""


def text(runs: Sequence[Json]) -> str:
    """Print every run."""
    return "\n".join("\n".join(_run(r)) + "\n" for r in runs)


def _run(r: Json) -> Iterator[str]:
    yield f"{r['name']}: {r['state']}"
    yield from (f"  {line}" for line in _progress_lines(r))
    yield from (f"  {line}" for line in table(_figures(r), "lr")) if r["step_time_s"] else ()
    yield from (_row("goodput", line) for line in _goodput_lines(r))
    yield from (_row("straggler", straggler(s)) for s in r["stragglers"])
    yield from (_row("warning", w["text"]) for w in r["warnings"])
    for alarm in r["alarms"]:
        yield from _alarm_lines(alarm)


def _progress_lines(r: Json) -> Iterator[str]:
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


def _goodput_lines(r: Json) -> Iterator[str]:
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


def _alarm_lines(alarm: Json) -> Iterator[str]:
    place = f" {alarm['log']}:{alarm['line']}" if alarm["line"] else f" {alarm['log']}" if alarm["log"] else ""
    if alarm["earlier"]:
        yield _row("earlier", f"{alarm['id']}{place}")
        return
    yield _row("ALARM", f"{alarm['id']}{place}")
    rows = {"": alarm["text"], "cause: ": alarm["cause"], "fix: ": alarm["fix"]}
    yield from (wrapped(name + value, " " * 15, " " * 17) for name, value in rows.items() if value)


def _row(name: str, value: str) -> str:
    return wrapped(value, f"  {name:<11}", " " * 13)


SIGN = '<meta name="generator" content="moedsl watch">'
"""The marker by which a page is known."""
POINTS = 500
"""The most points of a curve; of more lines, each point is the mean of several."""
WIDTH, HEIGHT = 1000, 160


def page(runs: Sequence[Watched], views: Sequence[dict[str, Any]], every: float) -> str:
    """Make one HTML document; it loads nothing from elsewhere."""
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(Path(__file__).parent), undefined=jinja2.StrictUndefined, autoescape=True
    )
    shown = [{"name": visible(v["name"]), "text": visible(text([v])), "curves": [*_curves(r.attempts())]}
             for r, v in zip(runs, views, strict=True)]  # fmt: skip
    return environment.get_template("watch.html.j2").render(
        runs=shown, every=math.ceil(every), width=WIDTH, height=HEIGHT
    )


def _curves(attempts: Sequence[Attempt]) -> Iterator[dict[str, Any]]:
    """The loss and the seconds of a step over the iterations, a line for each attempt."""
    losses = [[*zip(a.ends, a.losses, strict=True)] for a in attempts]
    times = [[(a.ends[i], (a.trained[i] - a.trained[i - 1]) / (a.ends[i] - a.ends[i - 1]))
              for i in range(1, len(a.ends))] for a in attempts]  # fmt: skip
    for name, each in (("loss", losses), ("s a step", times)):
        lines = [thinned([(x, y) for x, y in line if math.isfinite(y)]) for line in each]
        points = [p for line in lines for p in line]
        if len(points) < 2:
            continue
        (left, right), (low, high) = ((min(v), max(v)) for v in zip(*points, strict=True))
        area = svg.Area(0.0, 0.0, WIDTH, HEIGHT, (left, low), (right, high))
        paths = [svg.polyline(area.at(x, y) for x, y in line) for line in lines]
        yield {"name": name, "paths": paths, "left": f"{left:,.0f}", "right": f"{right:,.0f}", "low": f"{low:.4g}",
               "high": f"{high:.4g}"}  # fmt: skip


def thinned(points: Sequence[tuple[float, float]]) -> list[tuple[float, float]]:
    """Return at most `POINTS` points, each the mean of its neighbours."""
    size = math.ceil(len(points) / POINTS) or 1
    groups = [points[i : i + size] for i in range(0, len(points), size)]
    return [(sum(x for x, _ in g) / len(g), sum(y for _, y in g) / len(g)) for g in groups]
