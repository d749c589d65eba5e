"""`make accuracy`: compare the estimates with published runs left out of the fit; writes docs/accuracy.md and plots.

    python tools/make_accuracy.py          takes about five minutes on two cores
    python tools/make_accuracy.py --now    prints the errors of the constants as they are, without a fit

Every fit leaves one group of runs out (accuracy_groups.py).
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from os import cpu_count
from pathlib import Path

import accuracy_papers
import matplotlib
import numpy as np
from accuracy_groups import GROUPS, Prediction, Summary, by_left, speed, summary, table
from accuracy_interval import Slopes, judged, shares, slopes, write
from accuracy_left_out import folds, left_out, rival
from accuracy_memory import memory
from accuracy_parts import profiles
from accuracy_reasons import reasons
from accuracy_tflops import stated, tflops
from attrs import evolve

from moedsl.runs.measured_runs import Measured, read

matplotlib.use("svg")
matplotlib.rcParams["svg.hashsalt"] = "moedsl"
from matplotlib import pyplot as plt  # noqa: E402

ROOT = Path(__file__).parents[1]
CALIBRATION = ROOT / "stdlib/calibration"
PLOTTED = ("model", "GPU")
FAR = 0.2
"""A row with a larger error than this is listed."""
WHY = CALIBRATION / "far_off.txt"
WORST = 25
"""The rows that `--now` lists."""


def main() -> None:
    papers = runs(CALIBRATION / "papers.jsonl")
    speeds, rates = runs(CALIBRATION / "published.jsonl"), [s.measured for s in stated()]
    if "--now" in sys.argv[1:]:
        print("\n".join(now([*speeds, *rates])))
        return
    slope, share = slopes([*speeds, *rates]), shares([*speeds, *rates])
    found = left_out(list(folds(speeds, GROUPS, rates)), slope, share, cpu_count() or 1)
    write(speeds, [p for some in found.values() for p in some], slope, share, papers)
    for name in PLOTTED:
        plot(found[name], name, ROOT / f"docs/accuracy_{name.lower()}.svg")
    why = reasons(speeds, CALIBRATION / "published.jsonl")
    text = "\n".join(page(found, speeds, papers, share, why))
    (ROOT / "docs/accuracy.md").write_text(text + "\n", encoding="utf-8")
    print("\n".join(line for name, p in found.items() for line in table(p, name, why)))


def runs(path: Path) -> list[Measured]:
    """Read the runs of a file that have a speed."""
    _, every, found = read(path)
    if found:
        sys.exit("\n".join(d.message for d in found))
    return [r for r in every if r.tokens]


def now(every: Sequence[Measured]) -> Iterator[str]:
    """Yield the errors of the constants as they are, by group, and the worst rows."""
    said = [Prediction(r, "all", r.predicted(), rival(r, every)) for r in every]
    yield f"{'group':<34}{'runs':>5}{'median':>9}{'90%':>7}{'bias':>9}{'within 20%':>12}"
    yield _now("all", summary(said))
    for name, key in GROUPS.items():
        mine = [evolve(p, left=left) for p in said if (left := key(p.run)) is not None]
        yield from (_now(f"{name} {left}", s) for left, s in by_left(mine))
    yield "\nworst rows: estimate over measured"
    for p in sorted(said, key=lambda p: -abs(np.log1p(p.error)))[:WORST]:
        yield f"{p.run.id}  {1 + p.error:.2f}  {p.run.release:<11}{p.run.model} {p.run.cost.gpus} {p.run.gpu}"


def _now(name: str, s: Summary) -> str:
    goals = "" if s.reaches_goals else "  missed"
    return f"{name:<34}{s.runs:>5}{s.median:>9.1%}{s.ninety:>7.0%}{s.bias:>+9.1%}{s.within_20:>12.0%}{goals}"


def page(
    found: Mapping[str, Sequence[Prediction]],
    speeds: Sequence[Measured],
    papers: Sequence[Measured],
    share: Slopes,
    why: Mapping[str, str],
) -> Iterator[str]:
    """Yield docs/accuracy.md by lines: predictions by what was left out, then memory."""
    yield HEAD.format(runs=len(speeds))
    for name, predictions in found.items():
        yield f"## Leaving one {name} out\n"
        yield from table(predictions, name, why)
        yield f"\n![measured against estimated, leaving one {name} out](accuracy_{name.lower()}.svg)\n" * (
            name in PLOTTED
        )
    yield "## Intervals\n"
    yield INTERVALS
    yield from judged(found, share)
    yield "\n## Rows with large errors\n"
    yield from far_off(found["model"])
    yield "\n## Rows that other rows contradict\n"
    yield from noted(CALIBRATION / "contradicted.jsonl", "contradicted by")
    yield "\n## Adapters\n"
    yield ADAPTERS
    yield from noted(CALIBRATION / "adapters.jsonl", "why")
    yield "\n## Speeds published as TFLOPS\n"
    yield from tflops(found["model"])
    yield "\n## Dense models on A100\n"
    yield PAPERS
    yield from accuracy_papers.papers(papers)
    yield "\n## Profiles of real steps\n"
    yield from profiles()
    yield PROFILED
    yield "\n## Memory\n"
    yield from memory(speeds)


def far_off(predictions: Sequence[Prediction]) -> Iterator[str]:
    """Yield the rows beyond `FAR`, with their notes."""
    reasons = dict(line.split(" ", 1) for line in WHY.read_text(encoding="utf-8").splitlines() if line.strip())
    yield "| run | release | model | GPU | estimate over measured | why |"
    yield "|---|---|---|---|---|---|"
    for p in sorted(predictions, key=lambda p: -abs(p.error)):
        if abs(p.error) >= FAR:
            why = reasons.get(p.run.id, "not known")
            yield f"| {p.run.id} | {p.run.release} | {p.run.model} | {p.run.gpu} | {1 + p.error:.2f} | {why} |"


def noted(path: Path, column: str) -> Iterator[str]:
    """Yield the rows of a file, each with its `why`."""
    lines = map(json.loads, path.read_text(encoding="utf-8").splitlines())
    yield f"| run | release | model | GPU | estimate over measured | {column} |"
    yield "|---|---|---|---|---|---|"
    for r, line in zip(runs(path), lines, strict=True):
        yield f"| {r.id} | {r.release} | {r.model} | {r.gpu} | {r.predicted() / speed(r):.2f} | {line['why']} |"


def plot(predictions: Sequence[Prediction], name: str, path: Path) -> None:
    """Plot measured against estimated tokens/s of a GPU, both logarithmic, with the 20% band."""
    figure, axes = plt.subplots(figsize=(6, 5))
    for left in sorted({p.left for p in predictions}):
        mine = [p for p in predictions if p.left == left]
        axes.scatter([p.run.tokens for p in mine], [p.said for p in mine], s=14, label=left, alpha=0.7)
    ends = np.array([min(p.run.tokens or 1 for p in predictions), max(p.run.tokens or 1 for p in predictions)])
    axes.plot(ends, ends, color="black", linewidth=0.8)
    axes.fill_between(ends, ends * 0.8, ends * 1.2, color="black", alpha=0.08, label="within 20%")
    axes.set(xscale="log", yscale="log", xlabel="measured tokens/s/GPU", ylabel="estimated tokens/s/GPU")
    axes.set_title(f"estimated without having seen the {name}")
    axes.legend(fontsize=8)
    figure.tight_layout()
    figure.savefig(path, metadata={"Date": None})
    plt.close(figure)


HEAD = """# How accurate the estimates are

`make accuracy` writes this page from `stdlib/calibration/published.jsonl`: {runs} published speeds, each as a run with
everything pinned. They are NVIDIA's performance pages, verification cards and MLPerf v6.0, and the model zoo of
Megatron MoE. Each row below was estimated with constants that were fitted without its group. The rival is the simplest
estimate: one TFLOPS figure for each GPU and precision, from the same rows.

The goals for each group are a median error of 8% or less, 90% of the runs within 20%, and a bias (the median with its
sign) within 5%. The last column says which group misses them, and why. The column before has the median error and the
bias of the stdlib's constants, which were fitted to all runs. Where these are small, the group misses its goals because
no other run teaches what it needs. Runs with TFLOPS only are asked for too. No fit of these tables sees them, but the
stdlib's constants were fitted to them.

The constants are in `stdlib/calibration/`, each with a meaning and a range. `moedsl calibrate RUNS.jsonl` fits them to
your own runs. `python tools/make_accuracy.py --now` prints the errors of the constants as they are, without a fit.

**Balanced routing is not left out.** Without it there are only verification runs to fit to, most of them not tuned.

**Runs that are left out.** Nine speeds of 25.09 are left out, because their page does not state the precision. Its
notes on quantisation suggest FP8, and the recipe of the same layout is in BF16. Read as BF16, they were among the rows
with the largest errors. With them the medians are 8.2% (model left out; 87% within 20%) and 6.4% (GPU left out; 94%).

**Nemotron 3.** Its 40 runs came in November 2026, together with support for hybrids. Before, the four other models had
5.9% with a model left out and 91% within 20%. With constants fitted to no run of Nemotron 3, the median error of its
runs was 16%: too slow in FP8 on H100, and too fast on Blackwell. The rate of the scan, the rate of TP's messages and
the launches of quantised products were then set with these runs in view, and the constants fitted to all runs. Models
still disagree on FP8 on H100: the casts that Qwen3-30B needs are too slow for Nemotron 3 Nano.

**Expert overlap.** Runs on Blackwell before 26.06 are read as without expert overlap, because overlap came with the
graphs of whole iterations. `tools/measured_runs.py` has the reasons. Until November 2026 they were read with overlap.
Megatron-Core would have refused four of them. The medians of the estimate were then 4.0% and 3.4%.

**Age of the software.** There is no factor for it. The same configuration, published again with a later release, became
faster on Blackwell by 15% a year in the mean and by nothing in the median, and slower on H100. Configurations that
became faster by up to 40% had changed their recipe, which the estimate sees. A constant for a year of age, fitted with
the others, was 9% on both generations. It made the medians of the estimate at that time worse (4.4% to 5.2%, 3.7% to
4.0%), with as many rows within 20%.
"""

INTERVALS = """A plan shows the interval in which nine of ten steps lie. What makes it wide:

- **What the step leans on**, through the covariance of the constants after their fit. 0.4 of that deviation counts
  for a run unlike those of the fit: errors grow with about half of it up to 15%, and not beyond, where it comes from
  the wide ranges of launches. The errors of runs that resemble those of the fit do not grow with it.
- **The time that uneven tokens add**, under natural routing. Routers and data differ, so more runs do not tell it.
- **The time that the host's launches add.** Hosts and releases differ.
- **What nothing explains**, which is the same for every run that resembles those of the fit. It is larger on a GPU
  that no run was on, with another family of attention, on more GPUs, for a longer sequence, where few runs teach what
  the step leans on (that deviation above 5%), and where launches add more than 2% to it. What a run resembles never
  depends on its measurement.

The last three are chosen from the errors of runs that were left out: the shortest intervals, with a fine for each run
outside (the interval score), made so large that nine of ten are inside, of those that resemble the fit's and of the
others. Of the first, nine of ten are inside too if their model had no part in the choice. The columns `by other models`
judge each run by deviations that were chosen without the runs of its model. The goal for the width is 25% for runs with
forced balance that resemble the fit's. Under natural routing the width is 50 to 80%, and honest: unseen runs were off
by 11% in the median.
"""

ADAPTERS = """Six verification cards train LoRA on packed sequences with library recipes. One constant is fitted to one
of them: the host's time for a collective of an adapter. The others were left out. Nemotron 3.5 Lightning takes as long
on GB200 as on H100, so launches decide and not the GPU. Two terms that have nothing to do with adapters were missing,
in full fine-tuning too: the skew of a router that nothing balances, and the launches of a Mamba-2 scan.
"""

PAPERS = """No page of Bridge measures an A100. Ampere's constants are fitted to the four dense models of a paper on
Megatron-LM (`stdlib/calibration/papers.jsonl`), and the launches to functional tests that ran on A100 and H100. An
error is that of the step: `left out` is of constants fitted to the other three. The paper's figures are quoted from
memory, since it could not be opened: compare them with it. No run with experts is known, so a plan's interval on A100
is wide. Two functional tests of Mixtral count as H100's although their platform is called A100: their steps would take
more than an A100's peak.
"""

PROFILED = """
The parts are those of rank 0. DeepSeek-V3's profile has attention, permutation and dispatch only among the other
kernels of its main stream. Ultra's profile has ranges of the host, which are not times of kernels: only its steps are
compared.
"""

if __name__ == "__main__":
    main()
