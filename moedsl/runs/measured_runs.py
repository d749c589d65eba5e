"""Read measured runs, each a run file or its text with measurements, as columns for the estimate.

Also the reverse: write a plan as the text of a run file, with its layout pinned.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
from attrs import evolve, frozen
from numpy.typing import NDArray

from moedsl.compiler import compile_source
from moedsl.cost import Cost, flops
from moedsl.facts.axes import AXES, POLICY, written
from moedsl.facts.calibration import Constants
from moedsl.lang import reader
from moedsl.planner.experiment import settings
from moedsl.planner.plan import Plan
from moedsl.rules.check.program import Program
from moedsl.solver.problem import lower, pinned_row
from moedsl.solver.solve import make_cost, solve
from moedsl.support import foreign
from moedsl.support.diagnostics import Diagnostic, error
from moedsl.support.foreign import text_of
from moedsl.support.source import Source, Span
from moedsl.support.text import counted


@frozen
class Measured:
    """One run and its measurements; `row` has the code of every axis."""

    id: str
    release: str
    program: Program
    cost: Cost
    row: Mapping[str, int]
    tokens: float | None
    """Tokens/s/GPU over all counted iterations; None if not measured."""
    peak: float | None
    """Peak GB by torch.cuda.max_memory_allocated; None if not measured."""

    @property
    def model(self) -> str:
        return self.program.model.name

    @property
    def gpu(self) -> str:
        return self.program.hardware.name

    @property
    def arch(self) -> str:
        return self.program.hardware.arch

    @property
    def precision(self) -> str:
        return self.program.precision or "bf16"

    def predicted(self, constants: Constants | None = None) -> float:
        """Estimate the tokens/s/GPU, with other constants if given."""
        return float(self.cost.tokens_per_second_per_gpu(with_constants(self.cost, constants).time(self.row)[0]))


@frozen
class Batch:
    """Layouts of one model, hardware and batch, which are estimated together; `at` are their indices in the runs."""

    cost: Cost
    columns: Mapping[str, NDArray[np.int64]]
    at: tuple[int, ...]


def batches(runs: Sequence[Measured]) -> list[Batch]:
    """Group the runs by model, hardware and batch, in one `Batch` each."""
    kinds: list[tuple[Cost, list[int]]] = []
    for i, run in enumerate(runs):
        same = next((at for cost, at in kinds if cost == run.cost), None)
        if same is None:
            kinds.append((run.cost, same := []))
        same.append(i)
    return [
        Batch(cost, {n: np.array([runs[i].row[n] for i in at], np.int64) for n in runs[at[0]].row}, tuple(at))
        for cost, at in kinds
    ]


def predicted(asked: Sequence[Batch], constants: Constants | None = None) -> NDArray[np.float64]:
    """Estimate the tokens/s/GPU of every run, in order.

    If a constant is an array of shape (machines, 1), the result has the shape (machines, runs).
    """
    speeds = [b.cost.tokens_per_second_per_gpu(with_constants(b.cost, constants).time(b.columns)) for b in asked]
    machines = np.broadcast_shapes(*(s.shape[:-1] for s in speeds))
    out = np.empty((*machines, sum(len(b.at) for b in asked)))
    for b, speed in zip(asked, speeds, strict=True):
        out[..., list(b.at)] = speed
    return out


def with_constants(cost: Cost, constants: Constants | None) -> Cost:
    return cost if constants is None else evolve(cost, hardware=evolve(cost.hardware, constants=constants))


def above_peak(run: Measured, tokens: float) -> str | None:
    """Say that a GPU cannot train so many tokens a second; None if it can.

    Attention is not counted, because short samples have less of it. By this count, NVIDIA's fastest published run
    reaches 38% of the peak.
    """
    hw = run.cost.hardware
    most = hw.tflops[hw.rate_of(run.precision)]
    model = evolve(run.cost.model, window=0, window_every=0)
    needed = tokens * flops.of_token(model, 0, run.row["tp"]) / 1e12
    if needed <= most:
        return None
    return (
        f"{tokens:,.0f} tokens/s/GPU need at least {needed:,.0f} TFLOPS, and {hw.name} has {most:,.0f} in"
        f" {run.precision}: the times are of another unit, or of another run"
    )


def read(path: Path) -> tuple[Source, list[Measured], list[Diagnostic]]:
    """Read a JSON-lines file; return its source, its runs, and diagnostics for the first unreadable lines.

    If more than SHOWN lines are unreadable before the first run, reading stops: it is a log, or another kind of file.

    Keys of a line: run (the text of a run file) or file (its path, relative to this file's folder);
    tokens_per_s_per_gpu or step_time_s or neither; peak_gb, id and release if known.
    """
    out, wrong, at = list[Measured](), list[Sequence[Diagnostic]](), 0
    whole = Span(str(path), 0, 0)
    try:
        source = Source(str(path), text_of(path))
    except (OSError, UnicodeDecodeError) as e:
        return Source(str(path), ""), [], [_wrong(whole, f"{path} cannot be read: {e}")]
    for number, line in enumerate(source.text.splitlines(keepends=True), 1):
        span = Span(str(path), at, at + len(line.rstrip("\n")))
        at += len(line)
        read = of_line(line, number, path.parent, span) if line.strip() else ()
        if isinstance(read, Measured):
            out.append(read)
        elif read:
            wrong.append(read)
        if len(wrong) > SHOWN and not out:
            break
    found = [d for each in wrong[:SHOWN] for d in each]
    if len(wrong) > SHOWN and not out:
        shown = counted(SHOWN, "line")
        found.append(error("calibrate.run:not-runs", whole, shown=shown, path=path, help=_FROM_LOGS))
    elif len(wrong) > SHOWN:
        others = counted(len(wrong) - SHOWN, "other line")
        found.append(error("calibrate.run:rest-unusable", whole, wrong=others, path=path, help=_FROM_LOGS))
    return source, out, found


SHOWN = 5
"""The most unreadable lines of a file that are shown."""
_FROM_LOGS = "`moedsl results LOG --measured FILE` writes such lines from logs"


def of_line(line: str, number: int, folder: Path, span: Span) -> Measured | Sequence[Diagnostic]:
    """Read one line, at `span` of a file in `folder`; return its run, or why it cannot be used."""
    try:
        data = foreign.load_json(line)
    except ValueError as e:
        return [_wrong(span, f"this line is not JSON: {e}")]
    if not isinstance(data, dict) or not ("run" in data or "file" in data):
        return [_wrong(span, "this line has no `run` and no `file`")]
    name, text, file = f"run {data.get('id', number)}", data.get("run"), data.get("file")
    if text is None and isinstance(file, str):
        name = str(folder / file)
        source, unread = reader.read(name)
    elif isinstance(text, str):
        source, unread = reader.from_text(text, name)
    else:
        return [_wrong(span, "`run` is the text of a run file, and `file` its path")]
    if source is None:
        return [_wrong(span, unread[0].message)]
    result = compile_source(source, "check")
    if result.failed or len(result.programs) != 1:
        why = next((d.message for d in result.diagnostics if d.is_error), f"it holds {len(result.programs)} runs")
        return [_wrong(span, f"{name} does not compile: {why}")]
    p = result.programs[0]
    id = str(data.get("id", number))
    if p.gpus is None:
        return [_wrong(span, "the run names no number of GPUs")]
    measured = {n: data[n] for n in ("tokens_per_s_per_gpu", "step_time_s", "peak_gb") if data.get(n) is not None}
    wrong = [n for n, v in measured.items() if type(v) not in (int, float) or not 0 < v < math.inf]
    if wrong:
        return [_wrong(span, f"`{wrong[0]}` is not a positive number")]
    problem = lower(p, p.gpus)
    if all(len(domain) == 1 for domain in problem.domains.values()):
        row = pinned_row(problem)
    else:
        row = next((r.codes for r in solve(p, p.gpus, keep=1).solution.rows), None)
    if row is None:
        return [_wrong(span, "no layout of the run fits; pin the one that was measured")]
    cost = make_cost(problem)
    if not cost.has_layout(row["pp"], row["vpp"]):
        return [_wrong(span, f"the layers cannot be split over pp={row['pp']} x vpp={row['vpp']}")]
    tokens = data.get("tokens_per_s_per_gpu")
    if tokens is None and data.get("step_time_s"):
        tokens = float(cost.tokens_per_second_per_gpu(data["step_time_s"]))
    run = Measured(id, str(data.get("release", "")), p, cost, row, tokens, data.get("peak_gb"))
    above = None if tokens is None else above_peak(run, tokens)
    return run if above is None else [_wrong(span, above)]


def _wrong(span: Span, message: str) -> Diagnostic:
    help = 'a line is {"run": "qwen3_30b_a3b; h100 x 16; ...", "tokens_per_s_per_gpu": 12440}'
    return error("calibrate.run", message, span, help=help)


_PINNED = [a.name for a in AXES if a.section == "layout"] + [n for n in POLICY if n != "precision"]


def run_text(plan: Plan) -> str:
    """Return the run file that declares, states and pins everything that the plan decided."""
    values = settings(plan.layout, plan.policy)
    pins = "pin " + " ".join(f"{k}={written(values[k])}" for k in _PINNED)
    stages = plan.layout.pipeline_layout
    return "; ".join(
        [*experiment(plan), f"micro_batch {plan.batch.micro_batch}", pins,
         *([f'pin pipeline_layout="{stages}"'] if stages else [])]
    )  # fmt: skip


def experiment(plan: Plan) -> list[str]:
    """Return the declarations and statements of a plan, without the pins of its layout and policies."""
    batch, policy = plan.batch, plan.policy
    frozen = [w for w in ("vision", "projection", "language") if getattr(policy, f"freeze_{w}")]
    return [
        *([plan.declared] if plan.declared else []), f"model {plan.model}", f"{plan.hardware} x {plan.gpus}",
        f"{plan.phase} first", f"seq {batch.seq}", f"batch {batch.global_batch}", f"precision {policy.precision}",
        f"task {plan.task}", f"routing {policy.routing}",
        *([f"vlm {' '.join(f'freeze_{w}' for w in frozen)}"] if frozen else []),
    ]  # fmt: skip


def priced(plan: Plan) -> Measured | Sequence[Diagnostic]:
    """Return a plan as a run without measurements, or why its program does not compile here."""
    line = json.dumps({"run": run_text(plan), "id": plan.name})
    return of_line(line, 1, Path(), Span(plan.name, 0, 0))
