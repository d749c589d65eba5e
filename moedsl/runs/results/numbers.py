"""Find the numbers that turn seconds into tokens: length, GPUs, batch and useful share, of a plan or recipe or
given."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from attrs import frozen

from moedsl.planner.model.plan import Plan
from moedsl.runs.results.gather import Run
from moedsl.support.diagnostics import Diagnostic, error

_RAMP = "train.rampup_batch_size"


@frozen
class Given:
    """Numbers that the command line states, of runs whose plan or recipe does not give them."""

    seq: int | None = None
    gpus: int | None = None
    global_batch: int | None = None


@frozen
class Numbers:
    """The numbers of one run."""

    seq: int
    """Tokens of a sequence."""
    gpus: int
    global_batch: int | None
    """Sequences of a step; None if only the log has it."""
    useful_share: float
    """The share of tokens that train the model (`useful.share`); 1 without a plan."""
    source: str
    """plan, recipe or given."""
    ramps_up: bool = False
    """Whether the first steps have smaller batches (`rampup_batch_size`)."""

    def useful_rate(self, seconds: float, global_batch: int, trained: float = 1.0) -> float:
        """Useful tokens a second and GPU of a step; `trained` is the share of iterations that were not skipped."""
        return self.seq * global_batch * self.useful_share * trained / seconds / self.gpus


def numbers(runs: Sequence[Run], given: Given) -> list[Numbers | Diagnostic]:
    """The numbers of each run, or why they are unknown. Recipes go through the real Bridge if it is installed."""
    recipes = _recipes([r.recipe for r in runs if r.recipe], given)
    return [_one(r, given, recipes) for r in runs]


def _one(run: Run, given: Given, recipes: Mapping[str, Mapping[str, Any] | Diagnostic]) -> Numbers | Diagnostic:
    known: Mapping[str, Any] = {}
    if run.plan is not None:
        known = _of_plan(run.plan)
    elif run.recipe is not None:
        read = recipes[run.recipe]
        if isinstance(read, Diagnostic):
            return read
        known = read
    against = _contradiction(run, given, known)
    if against is not None:
        return against
    seq, gpus = given.seq or known.get("seq"), given.gpus or known.get("gpus")
    if seq is None or gpus is None:
        missing = " and ".join(w for w, v in (("length", seq), ("number of GPUs", gpus)) if v is None)
        text = f"{run.name}: unknown {missing}, so tokens cannot be counted"
        return error("results.numbers", text, help="give --seq, --gpus and --global-batch, or LOG=PLAN")
    batch = given.global_batch or known.get("global_batch")
    source = "plan" if run.plan else "recipe" if run.recipe else "given"
    return Numbers(int(seq), int(gpus), batch, known.get("useful_share", 1.0), source, bool(known.get(_RAMP)))


def _contradiction(run: Run, given: Given, known: Mapping[str, Any]) -> Diagnostic | None:
    """Refuse numbers of the command line that the plan or recipe contradicts: the log cannot be of both."""
    pairs = {"--seq": (given.seq, known.get("seq")), "--gpus": (given.gpus, known.get("gpus")),
             "--global-batch": (given.global_batch, known.get("global_batch"))}  # fmt: skip
    apart = {flag: (own, of) for flag, (own, of) in pairs.items() if own is not None and of is not None and own != of}
    if not apart:
        return None
    flags = ", ".join(f"{flag} {own} (it has {of})" for flag, (own, of) in apart.items())
    help = "leave out what the plan or recipe gives; if the log is of another run, give LOG=PLAN"
    return error("results.numbers", f"{run.name}: {run.plan_file or run.recipe} contradicts {flags}", help=help)


def _of_plan(p: Plan) -> dict[str, Any]:
    sizes = {"seq": p.batch.seq, "gpus": p.gpus, "global_batch": p.batch.global_batch}
    return {**sizes, "useful_share": p.estimate.useful_share, _RAMP: p.set.get(_RAMP)}


def _recipes(targets: Sequence[str], given: Given) -> dict[str, Mapping[str, Any] | Diagnostic]:
    """Read each recipe like `moedsl diff`; its number of GPUs is in its function's name or in --gpus."""
    if not targets:
        return {}
    from moedsl.bridge.diff.sources import Options, Side, sides
    from moedsl.bridge.verify import cases

    made: dict[str, Mapping[str, Any] | Diagnostic] = {}
    for target, side in zip(targets, sides(targets, options=Options(world=given.gpus)), strict=True):
        read = cases.read(target, world=given.gpus)
        if isinstance(side, Side) and isinstance(read, cases.Case):
            f = side.fields
            seq = f.get("model.seq_length", f.get("dataset.seq_length"))
            sizes = {"seq": seq, "gpus": read.world, "global_batch": f.get("train.global_batch_size")}
            made[target] = {**sizes, _RAMP: f.get(_RAMP)}
        else:
            made[target] = _unread(target, side)
    return made


def _unread(target: str, side: Any) -> Diagnostic:
    found = getattr(side, "diagnostics", ())
    return found[0] if found else error("results.numbers", f"{target} cannot be read as a recipe")
