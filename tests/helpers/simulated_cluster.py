"""A cluster whose truth is the estimate with other constants: it writes logs as Bridge does, without running anything."""

import json
import random
from collections.abc import Mapping
from pathlib import Path

from attrs import evolve, frozen

from moedsl.planner.plan import Plan
from moedsl.runs.measured_runs import Measured, priced
from moedsl.runs.tune.candidates import columns

STEPS = 40
OUT_OF_MEMORY = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.50 GiB. GPU 0 has 79.11 GiB"


@frozen
class Truth:
    """Factors of constants, and the noise of a step as a share."""

    factors: Mapping[str, float]
    noise: float = 0.01
    fits_gib: float = float("inf")
    """Runs whose estimated peak is larger run out of memory."""

    def step(self, plan: Plan) -> float:
        """The seconds of a step of that plan."""
        made = priced(plan)
        assert isinstance(made, Measured), made
        k = made.cost.hardware.constants
        moved = evolve(k, **{n: getattr(k, n) * f for n, f in self.factors.items()})
        cost = evolve(made.cost, hardware=evolve(made.cost.hardware, constants=moved))
        return float(cost.time(columns([made.row]))[0])

    def log(self, plan: Plan, seed: int = 0) -> str:
        """What the job of that plan prints."""
        if plan.estimate.memory.peak_gib > self.fits_gib:
            return f"[rank3]: {OUT_OF_MEMORY}\n"
        rng, seconds = random.Random(seed), self.step(plan)
        lines = (
            f" [t] iteration {n:8d}/ {STEPS:8d} | elapsed time per iteration (ms):"
            f" {1000 * seconds * (3 if n < 4 else 1 + self.noise * rng.gauss(0, 1)):.2f} |"
            f" global batch size: {plan.batch.global_batch:5d} | lm loss: 1.1E+01 | grad norm: 2.0 |\n"
            for n in range(1, STEPS + 1)
        )
        return "".join(lines)

    def run(self, plan: Plan, folder: Path, seed: int = 0) -> Path:
        """Write the plan and its log into a folder."""
        folder.mkdir(parents=True)
        (folder / "plan.json").write_text(json.dumps(plan.to_json()), encoding="utf-8")
        (folder / "train.log").write_text(self.log(plan, seed), encoding="utf-8")
        return folder
