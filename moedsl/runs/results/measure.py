"""Read the logs of one run together and measure it: its median after the warm-up, the spread, the median's error, how
it ended, and whether its log contradicts its plan.

A global batch that ramps up (`rampup_batch_size`) differs from a restart with another batch: only a ramp-up grows, and
it ends with the full batch. Consecutive steps of a run resemble each other, so the error of a median comes from blocks
of consecutive steps, not from single steps.

A log contradicts its plan by another global batch, starts of different speeds, TFLOPS of another model or number of
GPUs, or a speed that the GPU cannot reach. TFLOPS over tokens/s are the FLOPs of a token, which Bridge counts as
`moedsl.cost.flops` does: MoE, MTP and windows have their own terms, and recomputation has none. NVIDIA published 167
text runs with both; Bridge's count is 0.99 to 1.01 of ours in 133 and 0.83 to 1.05 in all: older releases count each
layer of GPT-OSS as windowed, and mean TFLOPS are above the TFLOPS of the mean step. Five layers of Moonlight on one
H200 log 1.00. `APART` is wider than all of these. Half or twice the GPUs are beyond it; another length, which changes
only attention's share, may be within it. Fine-tuning and images are not checked: there Bridge counts the tokens and
patches of the actual samples (training/utils/flop_utils.py:425), which no plan knows.
"""

from __future__ import annotations

import json
import math
import re
import statistics
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

from attrs import define, evolve, field, frozen

from moedsl.diagnose import log_lines, scan
from moedsl.diagnose.log_lines import Clock, Memory, Saved, Slow, Step, StepTime, is_finite, time_of
from moedsl.diagnose.scan import Report, Scan, Symptom
from moedsl.facts.units import GIB
from moedsl.planner.plan import Plan
from moedsl.runs.measured_runs import Measured, above_peak, priced, run_text
from moedsl.runs.results.gather import Numbers, Run

Json = dict[str, Any]
RATE = "useful_tokens_per_s_per_gpu"
WARMUP = 10
"""The default number of iterations to skip in an attempt; a third of a shorter attempt."""
OK, FAILED, UNFINISHED, SHORT, NOTHING = "ok", "failed", "unfinished", "too short", "no log"


def measure(run: Run, log: Log, n: Numbers, warmup: int | None) -> Json:
    """Return a run's row: how it ended, what it measured, and what its plan predicted."""
    log = last_settings(log, n.global_batch)
    skips = [_warmup(a[-1].iteration - before(a), warmup) for a in log.attempts]
    starts = [samples(a, skip) for a, skip in zip(log.attempts, skips, strict=True)]
    # The batch of a line is what the log states, which follows a ramp-up
    rows = [[(s, s.step.global_batch or n.global_batch or 0) for s in each if is_finite(s.step)] for each in starts]
    flat = [row for start in rows for row in start]
    seconds = [s.step.seconds for s, _ in flat]
    rates = [n.useful_rate(s.step.seconds, batch, s.trained) for s, batch in flat if batch]
    timed = [[Timed(s.step.seconds, batch, s.step.tflops) for s, batch in start if batch] for start in rows]
    # Rank 0's lines count if no log has the last rank's lines; they state no batch, so all must have the same one
    stated = batches(log.attempts)
    of_rank_0 = [t for t in log.step_times[_warmup(len(log.step_times), warmup) :] if t.seconds > 0]
    batch = (stated[0] if stated else n.global_batch) if len(stated) < 2 and not log.earlier else None
    timed_0 = [Timed(t.seconds, batch, t.tflops) for t in of_rank_0] if batch else []
    if not log.attempts:
        seconds, timed = [t.seconds for t in of_rank_0], [timed_0]
        rates = [n.useful_rate(t.seconds, t.global_batch) for t in timed_0]
    found = contradictions(run.plan, n, stated, timed, log.earlier, timed_0)
    is_other = any(w["id"] == BATCH for w in found)
    # The TFLOPS of the last rank if it logs them, else of rank 0
    tflops = [s.step.tflops for start in starts for s in start if s.step.tflops] or [t.tflops for t in log.step_times]
    furthest = max(log.attempts, key=lambda a: a[-1].iteration, default=())
    losses = [s for s in furthest if s.loss is not None and math.isfinite(s.loss)]
    of = (run.plan.sweep or run.plan.isolation) if run.plan else None
    return {
        "name": run.name, **({"place": run.place} if run.place else {}), "logs": list(log.files),
        **_ending(log, furthest[-1] if furthest else None, bool(rates)), "seq": n.seq, "gpus": n.gpus,
        "global_batch": flat[-1][1] if flat else n.global_batch, "batches": stated, "useful_share": n.useful_share,
        "numbers": n.source, "warmup": skips[0] if skips else warmup or 0, "samples": len(rates),
        "step_time_s": spread_of(seconds), "useful_tokens_per_s_per_gpu": spread_of(rates),
        "tflops_per_gpu": statistics.median(tflops) if tflops else None,
        "loss": {"first": losses[0].loss, "last": losses[-1].loss, "at": losses[-1].iteration} if losses else None,
        "skipped_iterations": sum(s.skipped for a in log.attempts for s in a),
        "peak_gib": None if log.peak is None else log.peak / GIB,
        "predicted": None if is_other or run.plan is None else predicted(run.plan), "warnings": found,
        **({"value_of": of.to_json()} if of else {}),
        **({"experiment": run.plan.experiment.fingerprint} if run.plan else {}),
    }  # fmt: skip


def _warmup(count: int, asked: int | None) -> int:
    """Return how many of `count` iterations to skip."""
    return min(WARMUP, count // 3) if asked is None else asked


def spread_of(values: Sequence[float]) -> Json | None:
    """Return minimum, quartiles, maximum, relative interquartile range, and the median's standard error; None for no
    values."""
    if not values:
        return None
    middle = statistics.median(values)
    low, _, high = [middle] * 3 if len(values) == 1 else statistics.quantiles(values, n=4, method="inclusive")
    ends = {"min": min(values), "q1": low, "median": middle, "q3": high, "max": max(values)}
    return {**ends, "spread": (high - low) / middle if middle else 0.0, "error": error_of(values)}


def _ending(log: Log, last: Step | None, measured: bool) -> Json:
    """Return how a run ended: `status`, its `cause` in words, and `symptoms` as `moedsl diagnose` names them.

    `last` is the furthest line of the run.
    """
    symptoms = [{"id": s.rule.id, "line": s.line, "log": r.name, "because": s.rule.because, "fix": s.rule.fix}
                for r in log.reports for s in r.standing]  # fmt: skip
    nan = next(filter(None, map(first_nan, log.attempts)), None)
    finished = last is not None and last.iteration >= last.of
    if nan is not None:
        status, cause = FAILED, f"loss or gradient is NaN at iteration {nan}"
    elif not finished and (symptoms or log.broken):
        errors = [r.last_error[1] for r in log.reports if r.last_error]
        reported = f"{symptoms[0]['because']} ({symptoms[0]['id']})" if symptoms else None
        status, cause = FAILED, reported or next(iter(errors), "its launcher reports a failure")
    elif not log.files:
        status, cause = NOTHING, "no job of the run has written one yet"
    elif not measured:
        status, cause = SHORT, "no iteration line after the warm-up" if last or log.step_times else _NO_LINES
    elif not finished and last is not None:
        status, cause = UNFINISHED, f"the log ends at iteration {last.iteration} of {last.of}"
    else:
        status, cause = OK, None
    return {"status": status, "cause": cause, "iteration": last.iteration if last else None,
            "of": last.of if last else None, "symptoms": symptoms}  # fmt: skip


_NO_LINES = "no iteration line as Megatron Bridge and Megatron-LM print them"


def remedy(row: Mapping[str, Any]) -> str:
    """Return what to do about a row without a measurement."""
    if row["cause"] == _NO_LINES:
        return "the last rank prints these lines: give its log, or wait for the first"
    return "`moedsl diagnose` reads why" if row["status"] == FAILED else "let it train longer"


def remarks(row: Mapping[str, Any]) -> list[str]:
    """Return the caveats of a row's figures: that the run failed, and what its log contradicts."""
    failed = [f"{FAILED}, {row['cause']}"] if row["status"] == FAILED else []
    return failed + [w["text"] for w in row["warnings"]]


def predicted(plan: Plan) -> Json:
    """Return the plan's predictions of the measured figures."""
    e = plan.estimate
    return {
        "step_time_s": e.step_time_s,
        "useful_tokens_per_s_per_gpu": e.useful_tokens_per_s_per_gpu,
        "tflops_per_gpu": e.model_tflops_per_gpu,
        "peak_gib": e.memory.peak_gib,
    }


def last_settings(log: Log, full: int | None) -> Log:
    """Return a log with only its last attempts, which continue with one batch setting.

    Steps before a restart with another batch are not comparable. `full` is the plan's batch; None if it is unknown.
    """
    pieces = list[Attempt]()
    for attempt in log.attempts:  # split where the batch falls, or exceeds the full one: another job continued there
        begin, before = 0, None
        for i, step in enumerate(attempt):
            batch = step.global_batch or before
            if before and batch and (batch < before or (full and before == full < batch)):
                pieces.append(attempt[begin:i])
                begin = i
            before = batch
        pieces.append(attempt[begin:])

    def goes_on(one: Attempt, other: Attempt) -> bool:
        """Whether attempt `other` begins with the batch that `one` had at that step, or continues its ramp-up."""
        theirs, mine = batches([other]), batches([one])
        at = batches([[s for s in reversed(one) if s.iteration <= other[0].iteration]]) or mine
        if not at or not theirs or at[0] == theirs[0]:
            return True
        return at[0] < theirs[0] and at[0] != full and (len(mine) > 1 or len(theirs) > 1)

    first = max(len(pieces) - 1, 0)
    while first > 0 and goes_on(pieces[first - 1], pieces[first]):
        first -= 1
    return evolve(log, attempts=tuple(pieces[first:]), earlier=tuple(batches(pieces[:first]))) if first else log


def batches(attempts: Iterable[Iterable[Step]]) -> list[int]:
    """Return the distinct batch sizes that the lines state, in order."""
    return list(dict.fromkeys(s.global_batch for a in attempts for s in a if s.global_batch))


BLOCKS = 8
"""The most blocks of one run."""
LEAST = 3
"""The fewest steps of a block. A run with too few steps for two blocks has no known error."""


def error_of(values: Sequence[float]) -> float | None:
    """Return the standard error of the median of one run's steps, in order; None if they are too few."""
    count = min(BLOCKS, len(values) // LEAST)
    if count < 2:
        return None
    cuts = [round(i * len(values) / count) for i in range(count + 1)]
    return error_of_repeats([statistics.median(values[a:b]) for a, b in pairwise(cuts)])


def error_of_repeats(values: Sequence[float]) -> float:
    """Return the standard error of the mean or median of several independent values."""
    return statistics.stdev(values) / len(values) ** 0.5


def calibration_lines(pairs: Sequence[tuple[Plan | None, Json]]) -> str:
    """Write a JSON line for each run that has a plan and figures, and whose log does not contradict its plan.

    Calibration counts every token, useful or not.
    """
    lines = list[str]()
    for plan, r in pairs:
        if plan and r[RATE] and r["status"] in (OK, UNFINISHED) and not unfit(plan, r):
            speed = r[RATE]["median"] / r["useful_share"]
            peak = {} if r["peak_gib"] is None else {"peak_gb": r["peak_gib"] * GIB / 1e9}
            row = {"id": r["name"], "run": run_text(plan), "tokens_per_s_per_gpu": speed, **peak}
            lines.append(json.dumps(row, ensure_ascii=False) + "\n")
    return "".join(lines)


BATCH, RESTART, STARTS, FLOPS, PEAK = "batch", "restart", "starts", "flops", "peak"
UNFIT = (BATCH, STARTS, FLOPS, PEAK)
"""The contradictions after which the figures belong to several runs, or to another run."""
APART = 1.3
"""If two counts of FLOPs per token differ by at least this ratio, they are from different runs."""
LINES = 10
"""The fewest lines after the warm-up from which the speed of a start is known."""
SPEEDS = 1.1
"""If the speeds of two starts differ by at least this ratio, one median misstates both."""


@frozen
class Timed:
    """A measured line of the log: the last rank's, or rank 0's."""

    seconds: float
    global_batch: int
    tflops: float | None


def contradictions(
    plan: Plan | None,
    n: Numbers,
    batches: Sequence[int],
    starts: Sequence[Sequence[Timed]],
    earlier: Sequence[int] = (),
    rank_0: Sequence[Timed] = (),
) -> list[Json]:
    """Return what in a log contradicts its plan, each as `id` and `text`.

    `batches` are the batch sizes that the log states, in order, `starts` the measured lines of each attempt, and
    `earlier` the batches of starts that do not count. The lines of `rank_0` have TFLOPS if the others have none.
    """
    found: dict[str, str | None] = {BATCH: _other_batch(n, batches)}
    if batches and earlier:
        was = " and ".join(f"{b:,}" for b in earlier)
        restart = f"before a restart with {batches[-1]:,}: only the steps since then count"
        found[RESTART] = f"its log had a global batch of {was} {restart}"
    each = [t for start in starts for t in start]
    known = [a for a in starts if len(a) >= LINES]
    speeds = [statistics.median(t.global_batch / t.seconds for t in a) for a in known]
    # A ramp-up has steps of several speeds
    if len(batches) < 2 and len(speeds) > 1 and max(speeds) >= SPEEDS * min(speeds):
        times = " and ".join(f"{statistics.median(t.seconds for t in a):.2f}" for a in known)
        mixed = f"its {len(known)} starts differ in speed, {times} s a step, and the figures mix them"
        found[STARTS] = f"{mixed}: look at the machines"
    if plan is not None and each:
        found[FLOPS] = _flops(plan, n, each) or _flops(plan, n, rank_0)
        # A speed up to the plan's is below the GPU's peak; if the program does not compile here, the peak is unknown
        rate = statistics.median(t.global_batch * n.seq / t.seconds for t in each) / n.gpus
        made = priced(plan) if rate > plan.estimate.tokens_per_s_per_gpu else None
        found[PEAK] = above_peak(made, rate) if isinstance(made, Measured) else None
    return [{"id": id, "text": text} for id, text in found.items() if text]


def unfit(plan: Plan, row: Mapping[str, Any]) -> list[str]:
    """Return why the figures of a row are not its plan's; empty if they are."""
    found = warning_texts(row, UNFIT)
    if not found and (len(row["batches"]) > 1 or row["global_batch"] != plan.batch.global_batch):
        found = [f"its batch ramps up to {plan.batch.global_batch:,}, and a line has one batch"]
    return found


def warning_texts(row: Mapping[str, Any], ids: Sequence[str]) -> list[str]:
    """Return the contradictions of a row with these ids."""
    return [w["text"] for w in row["warnings"] if w["id"] in ids]


def _other_batch(n: Numbers, batches: Sequence[int]) -> str | None:
    """Say that a log's batch is another experiment than the plan's; None if it is the same or still ramps up to it."""
    if not batches or n.global_batch is None or batches[-1] == n.global_batch:
        return None
    if batches[-1] < n.global_batch and (n.ramps_up or batches[0] < batches[-1]):
        return None
    stated = f"its log states a global batch of {batches[-1]:,}"
    if n.source == "given":
        return f"{stated}, --global-batch {n.global_batch:,}: the log's counts"
    return (
        f"{stated}, its {n.source} {n.global_batch:,}: that is another experiment, so it is not compared with the"
        f" {n.source}; compile the program with `batch {batches[-1]}`, and give LOG=PLAN"
    )


def _flops(plan: Plan, n: Numbers, each: Sequence[Timed]) -> str | None:
    """Say that a log counts other FLOPs per token than its plan; None if they agree or cannot be compared."""
    logged = [t.tflops * 1e12 * t.seconds * n.gpus / (t.global_batch * n.seq) for t in each if t.tflops]
    e = plan.estimate
    if not logged or plan.task != "pretrain" or e.parts:
        return None
    counted, own = statistics.median(logged), e.model_tflops_per_gpu * 1e12 / e.tokens_per_s_per_gpu
    if 1 / APART <= counted / own <= APART:
        return None
    return (
        f"its log counts {counted / 1e9:.3g} GFLOPs a token, {counted / own:.3g} times the {own / 1e9:.3g} of its plan:"
        " another model, length or number of GPUs ran, or its times are of another unit; give LOG=PLAN with the plan of"
        " what ran"
    )


Attempt = Sequence[Step]
"""Iteration lines with growing numbers; a requeued job begins another attempt."""


def first_nan(attempt: Attempt) -> int | None:
    """Return the iteration of the first line whose loss or gradient is NaN; None if there is none."""
    judged = log_lines.Health()
    for step in attempt:
        judged.add(step)
    return judged.nan


_BROKEN = re.compile(rb"Traceback \(most recent call last|ChildFailedError|srun: error|slurmstepd: error")


@define
class Reading:
    """What was parsed from one log, which is read block by block."""

    scan: Scan
    attempts: list[list[Step]] = field(factory=list)
    """A repeated line counts once: two ranks may print it."""
    step_times: list[StepTime] = field(factory=list)
    peak: float | None = None
    """Peak bytes of the fullest rank that printed them; None if none did."""
    saves: list[int] = field(factory=list)
    """The iterations of the checkpoints that were written completely."""
    slow: list[tuple[int, Slow]] = field(factory=list)
    """The reports of slow ranks, each with the iteration after which it came."""
    began: float | None = None
    """The first time in the log before its first iteration line; None if there is none."""
    broken: bool = False
    """Whether the log has a traceback or a launcher's error."""
    _seen: set[Step] = field(factory=set)

    def block(self, block: bytes) -> None:
        """Read a block of whole lines."""
        self.broken = self.broken or bool(_BROKEN.search(block))
        for line in self.scan.block(block):
            last = self.attempts[-1][-1].iteration if self.attempts else 0
            match line:
                case Step() if line not in self._seen:
                    self._seen.add(line)
                    if not self.attempts or line.iteration <= last:
                        self.attempts.append([])
                    self.attempts[-1].append(line)
                case StepTime():
                    self.step_times.append(line)
                case Memory():
                    self.peak = max(self.peak or 0.0, line.peak)
                case Saved():
                    self.saves.append(line.iteration)
                case Slow():
                    self.slow.append((last, line))
                case Clock() if self.began is None and not self.attempts:
                    self.began = time_of(line.stamp)
                case _:
                    pass


@frozen
class Log:
    """What was parsed from all logs of one run."""

    files: tuple[str, ...]
    attempts: tuple[Attempt, ...] = ()
    step_times: Sequence[StepTime] = ()
    peak: float | None = None
    """Peak bytes of the fullest rank that printed them; None if none did."""
    reports: tuple[Report, ...] = ()
    """The report of `diagnose` on each file."""
    earlier: tuple[int, ...] = ()
    """The batch sizes of attempts that do not count (`measure.last_settings`)."""
    broken: bool = False
    """Whether the log has a traceback or a launcher's error."""


def read_all(paths: Sequence[Path], known: Sequence[Symptom]) -> Log:
    """Read the logs of one run together. Raises OSError if a file cannot be read."""
    each = [Reading(Scan(known)) for _ in paths]
    for path, reading in zip(paths, each, strict=True):
        for block in blocks_of(path):
            reading.block(block)
    return Log(
        tuple(map(str, paths)),
        merged([r.attempts for r in each]),
        max((r.step_times for r in each), key=len, default=()),
        max((r.peak for r in each if r.peak is not None), default=None),
        tuple(r.scan.report(str(path)) for path, r in zip(paths, each, strict=True)),
        broken=any(r.broken for r in each),
    )


def merged(each: Sequence[Sequence[Attempt]]) -> tuple[Attempt, ...]:
    """Merge the attempts of several logs in the order of their times, or of the logs if lines have no times.

    A line in several logs, such as a rank's and the job's, counts once.
    """
    seen: set[Step] = set()
    found: list[tuple[float, int, Attempt]] = []
    for i, attempts in sorted(enumerate(each), key=lambda g: -sum(map(len, g[1]))):
        fresh = [a for a in (tuple(s for s in a if s not in seen) for a in attempts) if a]
        found += [(time_of(a[0].stamp) or 0.0, i, a) for a in fresh]
        seen.update(s for a in fresh for s in a)
    return tuple(a for _, _, a in sorted(found, key=lambda f: f[:2]))


def blocks_of(path: Path) -> Iterator[bytes]:
    """Yield a log in blocks of whole lines."""
    with path.open("rb") as stream:
        yield from scan.blocks(stream)


@frozen
class Sample:
    """One iteration line after the warm-up; it averages the iterations after `start`, up to its own."""

    start: int
    step: Step

    @property
    def trained(self) -> float:
        """The share of its iterations whose update was applied."""
        covered = self.step.iteration - self.start
        return max(0.0, (covered - self.step.skipped) / covered)


def samples(attempt: Attempt, warmup: int) -> list[Sample]:
    """Return the lines of an attempt that average none of its first `warmup` iterations."""
    origin = before(attempt)
    starts = [origin, *(s.iteration for s in attempt[:-1])]
    return [Sample(a, s) for a, s in zip(starts, attempt, strict=True) if a - origin >= warmup]


def before(attempt: Attempt) -> int:
    """Return the iteration before an attempt.

    The first line is taken to cover as many iterations as the second. With a single line that is unknown, so it is 0.
    """
    return max(0, 2 * attempt[0].iteration - attempt[1].iteration) if len(attempt) > 1 else 0
