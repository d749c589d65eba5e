"""The jobs of a chain against a clock that draws failures: they suffice, and few are spare."""

from __future__ import annotations

import statistics

import pytest
from failure_clock import Training, jobs_of

from moedsl.compiler import compile_source
from moedsl.launch.derive import Launch
from moedsl.planner.plan import Plan
from moedsl.support.source import Source
from tests.helpers import rotation
from tests.launch import launches

MINUTE, HOUR = 60.0, 3600.0
RUNS = 100


def chain(facts: str, length: str) -> tuple[Plan, Launch]:
    """A run of Qwen3-30B on 64 GB200 with its chain of jobs."""
    text = f"""qwen3_30b_a3b; gb200 x 64; data "/data/c"; set checkpoint.save = "/shared/c"; resilience preemption; {length}
cluster ours {{ default on; executor slurm; hardware gb200; chain on; {facts} }}"""
    result = compile_source(Source("run.moe", text))
    assert result.plans, result.diagnostics
    (made,) = result.plans
    return made, launches.launch(made, launches.cluster(f"executor slurm; hardware gb200; chain on; {facts}"))


CHAINS = [(0, 4, 3), (0, 24, 20), (1, 24, 3), (1, 4, 20), (5, 24, 20), (5, 4, 20)]
"""How often a job starts again, its limit in hours, and the days of the run."""
CASES = [(*each, mtbf_days) for each in CHAINS for mtbf_days in (8, 64, 2000)]


@pytest.mark.parametrize(
    ("retries", "limit", "length", "mtbf_days"), rotation.one_of_each("chains", CASES, lambda case: case[:3])
)
def test_the_jobs_of_a_chain_suffice(retries: int, limit: int, length: int, mtbf_days: int) -> None:
    """A failure every 3 hours, every day, or every month: of 20 runs, 19 are complete, and 6 of 10 jobs at most are
    spare, those of runs whose jobs start again with their whole limit."""
    again = f"retries {retries}" if retries else ""
    made, launch = chain(f'time "{limit}:00:00"; gpu_mtbf_days {mtbf_days}; {again}', f"for {length} days")
    assert launch.chain is not None and made.checkpoints is not None and made.estimate.interval is not None
    (lead,) = (s.value for s in launch.settings if s.name == "preempt_time")
    saves = made.checkpoints
    how = Training(
        step=made.estimate.interval.upper_s,
        every=saves.interval_steps,
        blocked=saves.blocked_s,
        durable=saves.write_s,
        mtbf=saves.failure_every_s,
        back=max(saves.return_s, 15 * MINUTE),
        limit=limit * HOUR - 15 * MINUTE,
        lead=lead,
        start=15 * MINUTE,
        retries=retries,
    )
    needed = sorted(jobs_of(how, launch.chain.steps, seed) for seed in range(RUNS))
    assert sum(n <= launch.chain.jobs for n in needed) >= 0.95 * RUNS, (launch.chain.jobs, needed)
    assert launch.chain.jobs <= 2.5 * statistics.median(needed) + 2, (launch.chain.jobs, needed)
