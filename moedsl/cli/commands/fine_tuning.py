"""`moedsl weights` and `moedsl data`: convert weights from and to Hugging Face, and measure samples."""

from __future__ import annotations

import sys
from argparse import Namespace
from pathlib import Path
from typing import Any

from moedsl.cli import console
from moedsl.cli.commands import launch
from moedsl.cli.terminal import Refused
from moedsl.launch import preflight, script
from moedsl.launch.script import Job
from moedsl.rules.check import cluster_rules
from moedsl.runs.samples import (
    BadLine,
    Measured,
    Tokens,
    estimated,
    measure,
    of_tokenizer,
    report,
    text,
    validation_note,
)
from moedsl.support.diagnostics import Diagnostic, Label, error
from moedsl.support.foreign import refused
from moedsl.support.source import Span


def weights(a: Namespace) -> int:
    """Convert weights from and to Hugging Face, here or on a cluster."""
    if a.action is None:
        print("give `moedsl weights import FILE` or `moedsl weights export FILE --to FOLDER`", file=sys.stderr)
        return 1
    result = console.compiled(a, "plan", asks="recipe")
    cluster, found = cluster_rules.choose(result.library, launch.asked(a.cluster))
    jobs, wrong = list[Job](), list[Diagnostic]()
    if cluster is not None:
        planned, more = launch.jobs(result, cluster, a.run)
        if a.action == "export" and len(planned) > 1:  # the folder is for one model
            text, names = "the file has several runs, and one is exported", ", ".join(j.plan.name for j in planned)
            wrong.append(error("launch.no_run", text, help=f"give `--run NAME`: {names}"))
        elif a.action == "export":
            for job in planned:
                if checkpoint := a.checkpoint or job.plan.set.get("checkpoint.save"):
                    jobs.append(script.export_job(job, str(checkpoint), a.to))
                else:
                    text, help = "the run names no folder of its checkpoints", "give `--from FOLDER`"
                    wrong.append(error("launch.weights", text, help=help))
        else:
            jobs = launch.imports(planned, result.library)
            text, help = "no run names weights of Hugging Face", 'write `task sft` and `weights hf "ORG/NAME"`'
            wrong = [*map(script.memory_of_import, jobs)] or [error("launch.weights", text, help=help)]
            for job in () if a.dryrun else jobs:
                wrong += preflight.hub_refusals(str(job.plan.hub_weights), None, cluster)
        found = [*found, *more, *wrong]
        if not any(d.is_error for d in found):
            found = [*found, *launch.refusals(cluster, jobs, a.dryrun, f"the {a.action} of weights")]
    console.say(found, result.sources)
    if cluster is None or any(d.is_error for d in found):
        return 1
    a.sequential = False
    return launch.start(a, cluster, jobs, result.source.name)


TRAINING, VALIDATION = "training.jsonl", "validation.jsonl"
_HELP = (
    'a line is {"input": "...", "output": "..."}',
    'or {"messages": [{"role": "user", "content": "..."}, {"role": "assistant", "content": "..."}]}',
)


def data(a: Namespace) -> int:
    """Report the lengths of the samples in a JSONL file. Exit 1 if a line is not a sample."""
    if a.action is None:
        print("give `moedsl data stats FILE`", file=sys.stderr)
        return 1
    path = Path(a.file)
    path = path / TRAINING if path.is_dir() else path
    count = estimated
    if a.tokenizer is not None:
        at = Label(Span(a.tokenizer, 0, 0))
        try:
            count = of_tokenizer(a.tokenizer)
        except ImportError:
            raise Refused([error("data.tokenizer:needs", at)]) from None
        except Exception as e:  # transformers raises errors of many kinds, and each is about the name
            first = (str(e).strip() or type(e).__name__).splitlines()[0]
            raise Refused([error("data.tokenizer:not-loaded", at, name=a.tokenizer, reason=first)]) from e
    measured = console.accepted(_measured(path, count, a.seconds))
    notes: list[str] = []
    # what a run needs of the folder: a path that its machines have, the names that Bridge reads, samples to validate on
    if not path.is_absolute():
        notes.append("The path is relative to this folder: a job on a cluster needs the absolute one.")
    validation = path.parent / VALIDATION
    if path.name != TRAINING:
        notes.append(f"A recipe reads {TRAINING} and {VALIDATION} of a folder: move {path.name} there as {TRAINING}.")
    elif not validation.exists():
        notes.append(f"{VALIDATION} is missing: a run also reads it.")
    else:
        found = _measured(validation, count, a.seconds)
        note = found.message if isinstance(found, Diagnostic) else validation_note(measured, found)
        notes += [note] if note else []
    made = report(measured, str(path.parent), a.tokenizer, notes)
    console.print_answer(a, made, lambda: text(made, str(path)))
    return 0


def samples_of(folder: Path) -> dict[str, Any] | None:
    """Return what `moedsl data stats` reports on a folder; None if it has no samples here. Raises Refused for a file
    that has none."""
    path = folder / TRAINING
    return report(console.accepted(_measured(path, estimated, 10)), str(folder), None) if path.exists() else None


def _measured(path: Path, count: Tokens, seconds: float) -> Measured | Diagnostic:
    at = Label(Span(str(path), 0, 0))
    try:
        if path.exists() and not path.is_file():
            return error("read.directory:regular", at, path=path)
        with path.open("rb") as file:
            measured = measure(file, count, seconds, console.tell)
    except OSError as e:
        return refused(path, e, "name a file of JSON lines")
    except BadLine as e:
        return error("data.line:line", at, number=e.number, path=path, reason=e.reason, help=_HELP)
    if not measured.counts:
        return error("data.line:sample", at, path=path, help=_HELP)
    return measured
