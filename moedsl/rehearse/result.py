"""Check a rehearsal, and format its result as JSON and as text.

Checks: finite losses, groups as planned, parameters as counted, replicas that stay equal.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from math import isfinite
from typing import Any

from attrs import asdict, frozen

from moedsl.compiler import load_stdlib
from moedsl.diagnose import scan
from moedsl.diagnose import text as diagnose_text
from moedsl.facts import machines
from moedsl.facts.axes import ATTENTION, EXPERTS, show
from moedsl.planner.plan import Plan
from moedsl.rehearse.cpu.bridge import Change, changes
from moedsl.rehearse.launch import Failure, Outcome
from moedsl.rehearse.prepare import Prepared
from moedsl.rehearse.shrink import BATCH, KEPT, KINDS, LEFT_OUT, SHRUNK, Note, Rehearsal, in_place_of
from moedsl.support.text import counted, wrapped

Answers = Sequence[Mapping[str, Any]]
"""The answers that the ranks wrote (worker.train)."""


@frozen
class Check:
    """One check and its result in words; `wrong` has a line for each difference."""

    name: str
    ok: bool
    says: str
    wrong: tuple[str, ...] = ()


@frozen
class Result:
    """One rehearsal. `outcome` is None if it was only shown; `diagnosis` is from the log of a rank that failed."""

    rehearsal: Rehearsal
    plan: Plan
    """The plan that was rehearsed."""
    device: str
    """cpu or gpu."""
    prepared: Prepared | None = None
    outcome: Outcome | None = None
    checks: tuple[Check, ...] = ()
    diagnosis: dict[str, Any] | None = None

    @property
    def ok(self) -> bool:
        """Whether training finished and every check passes; true for a rehearsal that was only shown."""
        return self.outcome is None or (self.outcome.failure is None and all(c.ok for c in self.checks))

    def notes(self, kind: str) -> list[Note]:
        """Return the notes of one kind: kept, shrunk, or not rehearsed."""
        return [n for n in self.rehearsal.notes if n.kind == kind]

    @property
    def replaced(self) -> Sequence[Change]:
        """The recipe's fields that have other values on a CPU."""
        return changes(self.rehearsal.model.linear) if self.device == "cpu" else ()


def to_json(r: Result) -> dict[str, Any]:
    """Return a run's JSON object for `moedsl rehearse --json`."""
    small, trained = r.rehearsal, None
    if r.outcome is not None and r.prepared is not None:
        failure = r.outcome.failure
        trained = {
            "seconds": r.outcome.seconds, "iterations": r.prepared.iterations,
            "losses": r.outcome.answers[-1]["losses"] if r.outcome.answers else [],
            "checks": [asdict(c) for c in r.checks],
            "failure": None if failure is None else {**asdict(failure), "diagnosis": r.diagnosis},
        }  # fmt: skip
    return {
        "name": small.name, "ok": r.ok, "device": r.device, "ranks": small.ranks,
        "layout": {**small.layout, "pipeline_layout": small.pipeline_layout},
        "plan": {k: getattr(r.plan.layout, k) for k in (*small.layout, "pipeline_layout")},
        "batch": {name: getattr(small, name) for name in BATCH},
        **{kind.replace(" ", "_"): [n.to_json() for n in r.notes(kind)] for kind in KINDS},
        "replaced": [asdict(c) for c in r.replaced], "trained": trained,
    }  # fmt: skip


def diagnosis(prepared: Prepared, outcome: Outcome) -> dict[str, Any] | None:
    """Diagnose the log of the rank that failed, as `moedsl diagnose --json` does; None if no rank failed."""
    if outcome.failure is None or outcome.failure.rank is None:
        return None
    log = prepared.folder / f"rank_{outcome.failure.rank}.log"
    if not log.exists():
        return None
    with log.open("rb") as stream:
        report = scan.diagnose(log.name, scan.blocks(stream), scan.symptoms(load_stdlib()))
    return diagnose_text.to_json(report, {})


_MESHES = {"attention": (*ATTENTION, "vpp"), "experts": EXPERTS}


def text(r: Result) -> str:
    """Format one run: what was done, both meshes, how it differs from the plan, the checks, and why it failed."""
    where = f"{counted(r.rehearsal.ranks, 'process')} of this machine's {r.device.upper()}"
    rows = ["Meshes, here and in the plan"]
    for name, axes in _MESHES.items():
        rows.append(f"  {name:<9}  {_mesh(r.rehearsal.layout, axes):<44}  {_mesh(r.plan.layout.to_json(), axes)}")
    here, plan = (layout or "even" for layout in (r.rehearsal.pipeline_layout, r.plan.layout.pipeline_layout))
    rows.append(f"  layers     {here:<44}  {plan}")
    parts = ["\n".join(rows), _notes(r)]
    if r.outcome is None or r.prepared is None:
        head = f"{r.rehearsal.name}: what a rehearsal would run, on {where}"
    else:
        done = f"{'rehearsed' if r.ok else 'FAILED'} on {where}, {r.prepared.iterations} iterations"
        head = f"{r.rehearsal.name}: {done}, {r.outcome.seconds} s"
        parts += _trained(r.checks, r.outcome.failure)
    tasks = [_paragraph("  ", in_place_of(n.plan), "  ") for n in r.notes(LEFT_OUT) if n.what == "task"]
    diagnosed = f"\n{diagnose_text.text(r.diagnosis)}" if r.diagnosis else ""
    return "\n\n".join(["\n".join([head, *tasks]), *parts]) + "\n" + diagnosed


def _mesh(sizes: Mapping[str, Any], axes: Sequence[str]) -> str:
    text = " x ".join(f"{a} {sizes[a]}" for a in axes if a != "vpp")
    return f"{text}, vpp {sizes['vpp']}" if "vpp" in axes and sizes["vpp"] > 1 else text


def _notes(r: Result) -> str:
    def said(value: Any) -> str:
        return f"{value:,}" if type(value) is int else show(value)

    kept = ", ".join(n.what if n.plan is True else f"{n.what} {said(n.plan)}" for n in r.notes(KEPT))
    shrunk = ", ".join(f"{n.what} {said(n.plan)} to {said(n.here)}" for n in r.notes(SHRUNK))
    rows = [_paragraph("Kept    ", kept), _paragraph("Shrunk  ", shrunk), "Not rehearsed"]
    for n in r.notes(LEFT_OUT):
        instead = f"; here {said(n.here)}" if n.here is not None else ""
        because = f": {n.because}" if n.because else ""
        rows.append(_paragraph("  ", f"{n.what} {said(n.plan)}{instead}{because}", "    "))
    if r.replaced:
        rows.append(f"  {len(r.replaced)} fields of the recipe have other values on a CPU: --json lists them")
    return "\n".join(rows)


def _paragraph(head: str, text: str, indent: str = "        ") -> str:
    return wrapped(text, head, indent, width=108)


def _trained(checks: Sequence[Check], failure: Failure | None) -> Iterator[str]:
    """Yield the checks, and why a rank failed."""
    if checks:
        rows = ["Checks"]
        for c in checks:
            if c.ok:
                rows.append(_paragraph(f"  ok     {c.name:<11}", c.says, " " * 20))
            else:
                more = [f"and {len(c.wrong) - 8} more"] if len(c.wrong) > 8 else []
                rows += [f"  WRONG  {c.name}", *(f"         {line}" for line in (*c.wrong[:8], *more))]
        yield "\n".join(rows)
    if failure:
        status = failure.status or 0
        how = f"by signal {-status}" if status < 0 else f"with exit code {status}"
        why = {
            "timeout": f"Stopped at the time limit. Last lines of rank {failure.rank}, the first without an answer:",
            "start": "The process that imports Megatron Bridge exited. Its last lines:",
            "rank": f"Rank {failure.rank} ended {how}, and the others were ended. Its last lines:",
        }
        yield "\n".join([why[failure.kind], *(f"  {line}" for line in failure.lines)])


def checks(prepared: Prepared, answers: Answers) -> tuple[Check, ...]:
    """Run all checks on the answers of ranks that finished training."""
    return tuple(ask(prepared, answers) for ask in (loss, groups, parameters, replicas))


def loss(prepared: Prepared, answers: Answers) -> Check:
    """Check that each rank of the last stage has a finite loss in every iteration."""
    ranks, stages, wrong = prepared.rehearsal.ranks, prepared.rehearsal.layout["pp"], list[str]()
    last = [a for a in answers if a["rank"] >= ranks - ranks // stages]
    for answer in last:
        found = answer["losses"]
        if len(found) != prepared.iterations:
            wrong.append(f"rank {answer['rank']}: {len(found)} iterations of {prepared.iterations}")
        for i, losses in enumerate(found, 1):
            if "lm loss" not in losses or not all(isfinite(v) for v in losses.values()):
                wrong.append(f"rank {answer['rank']}, iteration {i}: {dict(losses) or 'no loss'}")
    if len(last) != ranks // stages:
        wrong.append(f"{len(last)} of {ranks // stages} ranks of the last stage answered")
    values = ", ".join(f"{losses['lm loss']:.4f}" for losses in last[-1]["losses"]) if last and not wrong else "none"
    return Check("loss", not wrong, f"finite in each of {prepared.iterations} iterations: {values}", tuple(wrong))


def groups(prepared: Prepared, answers: Answers) -> Check:
    """Compare each rank's groups, from Megatron-Core's state, with both meshes of the layout."""
    planned = machines.rank_groups(prepared.rehearsal.layout)
    wrong = list[str]()
    for a in answers:
        for name, family in planned.items():
            made, ranks = a["groups"].get(name), next(g for g in family if a["rank"] in g)
            if made != ranks:
                wrong.append(f"rank {a['rank']}: {name} is {made}, planned {ranks}")
    count = sum(len(family) for family in planned.values())
    says = f"{len(planned)} families of both meshes, {count} groups over {prepared.rehearsal.ranks} ranks, as planned"
    return Check("groups", not wrong and len(answers) == prepared.rehearsal.ranks, says, tuple(wrong))


def parameters(prepared: Prepared, answers: Answers) -> Check:
    """Compare each rank's parameters, dense and experts', with moedsl's count for its stage."""
    per_stage = prepared.rehearsal.ranks // prepared.rehearsal.layout["pp"]
    wrong = list[str]()
    for a in answers:
        want, has = prepared.parameters[a["rank"] // per_stage], a["parameters"]
        for kind, count in (("dense", want.dense), ("expert", want.expert)):
            if has[kind] != count:
                wrong.append(f"rank {a['rank']}: {has[kind]:,} {kind} parameters, counted {count:,}")
    each = "; ".join(f"stage {i}: {p.dense:,} + {p.expert:,}" for i, p in enumerate(prepared.parameters))
    says = f"as counted on every rank, dense + expert: {each}"
    return Check("parameters", not wrong and len(answers) == prepared.rehearsal.ranks, says, tuple(wrong))


def replicas(prepared: Prepared, answers: Answers) -> Check:
    """Check that ranks of one data-parallel group end with the same values, which differ from the initial ones.

    Dense parameters are reduced over DP x CP, and experts' over EDP; gradients sent to wrong ranks would make replicas
    differ.
    """
    planned, after = machines.rank_groups(prepared.rehearsal.layout), {a["rank"]: a["after"] for a in answers}
    same = [a["rank"] for a in answers if a["before"]["dense"] == a["after"]["dense"]]
    wrong = [f"rank {rank}: no dense parameter has changed" for rank in same]
    for kind, family in (("dense", "DP_CP"), ("expert", "EDP")):
        differing = [g for g in planned[family] if len({after[r][kind] for r in g if r in after}) > 1]
        wrong += [f"{family} group {g}: {kind} parameters differ after training" for g in differing]
    says = "parameters are equal within each DP x CP and EDP group after the last step, and changed since the first"
    return Check("replicas", not wrong and len(answers) == prepared.rehearsal.ranks, says, tuple(wrong))
