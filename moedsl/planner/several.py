"""Several runs of a file: a table of all, the comparison of a sweep, and diagnostics that are printed once for all."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from attrs import evolve, frozen

from moedsl.facts.axes import SIZES, show
from moedsl.planner.plan import Plan, html_table
from moedsl.rules.check.program import Program
from moedsl.support.diagnostics import Diagnostic
from moedsl.support.json_form import JsonForm
from moedsl.support.text import table, tokens, wrapped


@frozen
class SweptRun(JsonForm):
    """The estimate of one run of a sweep."""

    name: str
    value: str
    step_time_s: float
    useful_tokens_per_s_per_gpu: float
    speedup: float
    """Useful tokens a second and GPU, relative to the first run."""
    peak_gib: float


@frozen
class Sweep(JsonForm):
    """The runs of a sweep, compared by useful tokens: runs of different sequence lengths do different work."""

    of: str
    """The name of the run in the file."""
    axis: str
    values: tuple[SweptRun, ...]

    def text(self) -> str:
        """Print a table with the best value marked."""
        best = max(v.useful_tokens_per_s_per_gpu for v in self.values)
        rows = [(self.axis, "s a step", "useful tokens/s/GPU", "speedup", "peak GiB", "")]
        for v in self.values:
            rate = v.useful_tokens_per_s_per_gpu
            figures = (f"{v.step_time_s:.2f}", f"{rate:,.0f}", f"{v.speedup:.3f}x", f"{v.peak_gib:.1f}")
            rows.append((v.value, *figures, "best" if rate == best else ""))
        return "\n".join([f"{self.of}: sweep of {self.axis}, compared by useful tokens", *table(rows)]) + "\n"


def sweeps(plans: Sequence[Plan]) -> list[Sweep]:
    """Compare the values of each sweep among the plans, in their order."""
    groups: dict[tuple[str, str], list[SweptRun]] = {}
    for p in plans:
        if p.sweep:
            e, runs = p.estimate, groups.setdefault((p.sweep.of, p.sweep.axis), [])
            rate = e.useful_tokens_per_s_per_gpu
            speedup = rate / runs[0].useful_tokens_per_s_per_gpu if runs else 1.0
            runs.append(SweptRun(p.name, p.sweep.value, e.step_time_s, rate, speedup, e.memory.peak_gib))
    return [Sweep(of, axis, tuple(runs)) for (of, axis), runs in groups.items() if len(runs) > 1]


def runs_text(plans: Sequence[Plan], width: int) -> str:
    """Print what all runs have in common, then a line for each with the rest, its speed, memory and verdict."""
    each = [
        {"model": p.model, "hardware": p.hardware, "GPUs": str(p.gpus), "length": tokens(p.batch.seq)}
        | {n: str(getattr(p.layout, n)) for n in SIZES}
        for p in plans
    ]
    common = {k: v for k, v in each[0].items() if all(e[k] == v for e in each)}
    names = [k for k in each[0] if k not in common]
    heads = ("run", *names, "s a step", "tokens/s/GPU", "GiB", "verdict")
    rows: list[tuple[str, ...]] = [heads]
    for p, own in zip(plans, each, strict=True):
        e, m = p.estimate, p.estimate.memory
        figures = (f"{e.step_time_s:.2f}", f"{e.useful_tokens_per_s_per_gpu:,.0f}", f"{m.peak_gib:.1f}", m.verdict)
        rows.append((p.name, *(own[k] for k in names), *figures))
    shared = ", ".join(f"{k}\xa0{v}" for k, v in common.items())  # a line may end only between two of these
    shared = wrapped(shared, f"{len(plans)} runs: ", "  ", width).replace("\xa0", " ")
    return "\n".join([shared, *table(rows, "l" + "r" * (len(heads) - 2) + "l")]) + "\n"


def record(p: Plan) -> dict[str, Any]:
    """Return a plan as one flat record: what runs, its layout and policy by axis, and its estimate (seconds, GiB)."""
    e = p.estimate
    return {
        "run": p.name, "model": p.model, "hardware": p.hardware, "gpus": p.gpus, "seq": p.batch.seq,
        "global_batch": p.batch.global_batch, **p.layout.to_json(), **p.policy.to_json(),
        "step_time_s": e.step_time_s, "tokens_per_s_per_gpu": e.tokens_per_s_per_gpu,
        "model_tflops_per_gpu": e.model_tflops_per_gpu, "peak_gib": e.memory.peak_gib, "verdict": e.memory.verdict,
    }  # fmt: skip


def html(plans: Sequence[Plan]) -> str:
    """Return a table for a notebook, with a column for each plan and a row for each value that differs; empty without
    plans."""
    records = [record(p) for p in plans]
    different = [name for name in (records[0] if records else ()) if len({str(r[name]) for r in records}) > 1]
    return html_table([(name, *(show(r[name]) for r in records)) for name in different]) if records else ""


OfRun = tuple[Program, Diagnostic]


def merged(diagnostics: Iterable[OfRun], programs: Sequence[Program]) -> list[Diagnostic]:
    """Merge diagnostics that differ only in `values`, in the order of their first occurrence.

    A value that differs becomes the list of all values. If another of the file's `programs` comes from the same text
    but lacks the diagnostic, `values` also gets `runs`: the names of the runs that have it.
    """
    alike: dict[str, list[OfRun]] = {}
    for p, d in diagnostics:
        alike.setdefault(repr(evolve(d, values={})), []).append((p, d))
    out = list[Diagnostic]()
    for group in alike.values():
        first, every = group[0][1], dict[str, list[Any]]()
        for name, value in ((n, v) for _, d in group for n, v in d.values.items()):
            distinct = every.setdefault(name, [])
            distinct += [value] if value not in distinct else []
        values = {n: vs[0] if len(vs) == 1 else vs for n, vs in every.items()}
        concerned = list(dict.fromkeys(p.name for p, _ in group))
        # Whether another run is made of the text that the diagnostic points at
        places = [first.labels[0].span] if first.labels else []
        if any(span in p.spans.values() for p in programs if p.name not in concerned for span in places):
            values["runs"] = concerned[0] if len(concerned) == 1 else concerned
        out.append(evolve(first, values=values))
    return out
