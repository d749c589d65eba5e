"""Run months of training with failures on a clock: what is trained, saved, lost and restarted, one event after another.

Where no failure is near, whole intervals pass at once.

It shares no formula with moedsl/cost/goodput.py, which it judges: failures are drawn, checkpoints are written, and a
run returns to the last one that was written whole.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field

MONTH = 30 * 86400.0


@dataclass(frozen=True)
class Training:
    """How a run trains and saves; times in seconds."""

    step: float
    every: int
    """Steps between two checkpoints."""
    blocked: float
    """How long a save stops training."""
    durable: float
    """How long it is written after training goes on."""
    mtbf: float
    """Mean time between failures."""
    back: float
    """From a failure until training goes on; a failure meanwhile starts it again."""
    limit: float = 0.0
    """The time limit of a job; 0 is none."""
    lead: float = 0.0
    """How long before the limit a job saves and ends."""
    start: float = 0.0
    """From the end of a job until the next one of the chain trains."""
    near: int = 1
    """Saves on the nodes' own disks between two others, and one."""
    near_blocked: float = 0.0
    near_durable: float = 0.0
    in_place: float = 0.0
    """The share of failures after which a run returns to these."""
    retries: int | None = None
    """How often a job that failed starts again under its number, with its whole limit; None: a failure ends no job."""


@dataclass
class Clock:
    """The state of a run, and what its time went to."""

    how: Training
    draw: random.Random
    now: float = 0.0
    fails: float = 0.0
    job_ends: float = 0.0
    step: int = 0
    """Steps that are trained."""
    safe: int = 0
    """The step of the last checkpoint that was written whole."""
    writing: tuple[float, int] | None = None
    """When the checkpoint that is written will be whole, and its step."""
    near: int = 0
    """The same on the nodes' own disks: a step, and what is written."""
    near_writing: tuple[float, int] | None = None
    failures: int = 0
    jobs: int = 1
    """The jobs of the chain so far."""
    starts: int = 1
    again: int = 0
    """How often this job has failed."""
    spent: dict[str, float] = field(default_factory=lambda: dict.fromkeys(("saves", "returns", "starts"), 0.0))

    def __post_init__(self) -> None:
        self.fails = self._next()
        self.job_ends = self.how.limit or float("inf")

    def _next(self) -> float:
        return self.now + self.draw.expovariate(1 / self.how.mtbf)

    def passes(self, seconds: float, kind: str = "") -> bool:
        """Let time pass; False if a failure came first, after which the run is back at its last checkpoint."""
        if self._waits(seconds, kind):
            return True
        self.settle()
        if self.draw.random() >= self.how.in_place:
            self.near = 0
        self.step = max(self.safe, self.near)
        self.writing = self.near_writing = None
        self.starts_again()
        while not self._waits(self.how.back, "returns"):
            self.starts_again()
        return False

    def starts_again(self) -> None:
        """Start the job again that failed, or the next one of the chain."""
        if self.how.retries is None:
            return
        self.starts += 1
        self.again += 1
        if self.again > self.how.retries:
            self.again = 0
            self.jobs += 1
        self.job_ends = self.now + self.how.limit

    def _waits(self, seconds: float, kind: str) -> bool:
        """Let time pass up to the next failure, if that is earlier."""
        until = min(self.now + seconds, self.fails)
        if kind:
            self.spent[kind] += until - self.now
        self.now = until
        if until < self.fails:
            return True
        self.failures += 1
        self.fails = self._next()
        return False

    def settle(self) -> None:
        if self.writing and self.writing[0] <= self.now:
            self.safe, self.writing = self.writing[1], None
        if self.near_writing and self.near_writing[0] <= self.now:
            self.near, self.near_writing = self.near_writing[1], None

    def skip(self, until: float, goal: float) -> None:
        """Let all whole intervals pass at once but the last two before a failure, a time, or a number of steps."""
        steps = self.how.every // self.how.near
        span, near = steps * self.how.near, self.how.near - 1
        saves = self.how.blocked + near * self.how.near_blocked
        takes = self.how.step * span + saves
        if self.step % span or self.how.durable > takes:  # within an interval, or a save is never whole
            return
        times = int(min((min(self.fails, until) - self.now) / takes, (goal - self.step) / span)) - 2
        if times > 0:
            self.now += times * takes
            self.spent["saves"] += times * saves
            self.step += times * span
            self.safe, self.writing = self.step, None

    def interval(self, until: float = float("inf"), goal: float = float("inf")) -> None:
        """Train until the next checkpoint, save it, and go on."""
        self.skip(until, goal)
        steps = self.how.every // self.how.near
        reached = (self.step // steps + 1) * steps
        if not self.passes(self.how.step * (reached - self.step)):
            return
        shared = reached % (steps * self.how.near) == 0
        if self.passes(self.how.blocked if shared else self.how.near_blocked, "saves"):
            self.settle()
            self.step = reached
            if shared:
                self.writing = (self.now + self.how.durable, reached)
            else:
                self.near_writing = (self.now + self.how.near_durable, reached)
            self.settle()

    def job(self, goal: float = float("inf")) -> None:
        """Train until the lead before the time limit, save while training waits, and start the next job, unless the
        steps of the run are trained."""
        while self.now + self.how.step * self.how.every + self.how.blocked < self.job_ends - self.how.lead:
            self.interval(self.job_ends - self.how.lead, goal)
            if self.step >= goal:
                return
        start = self.starts
        while steps := max(0, int((self.job_ends - self.how.lead - self.now) // self.how.step)):
            if self.passes(self.how.step * steps):
                break
            if self.starts != start:
                return
        reached = self.step + steps
        if self.passes(self.how.blocked + self.how.durable, "saves"):
            self.step = self.safe = reached
            self.writing = None
            if reached >= goal:
                return
        elif self.starts != start:
            return
        self.jobs, self.again = self.jobs + 1, 0
        self.starts += 1
        self.passes(self.how.start, "starts")
        self.job_ends = self.now + self.how.limit


def trained(how: Training, months: float, seed: int) -> Clock:
    """Run for so many months; `safe` steps times the seconds of a step is what was trained and kept."""
    clock = Clock(how, random.Random(seed))
    while clock.now < months * MONTH:
        clock.job() if how.limit else clock.interval(months * MONTH)
    clock.settle()
    return clock


def goodput(how: Training, months: float, seed: int) -> float:
    """The share of the time that trains and is kept."""
    clock = trained(how, months, seed)
    return clock.safe * how.step / clock.now


def jobs_of(how: Training, steps: int, seed: int) -> int:
    """The jobs of a chain that trains so many steps."""
    clock = Clock(how, random.Random(seed))
    while clock.step < steps:
        clock.job(steps)
    return clock.jobs
