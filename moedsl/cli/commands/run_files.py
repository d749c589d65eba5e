"""`moedsl init` and `moedsl fmt`: write a first run file, and format run files."""

from __future__ import annotations

import os
import re
import shlex
import sys
from argparse import Namespace
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from moedsl.cli import console
from moedsl.cli.commands.fine_tuning import samples_of
from moedsl.cli.terminal import Refused, folded, print_file
from moedsl.compiler import compile_source, load_stdlib
from moedsl.facts.fine_tuning import Adapter, defaults
from moedsl.facts.symbols import FINE_TUNES, TASKS
from moedsl.lang import reader
from moedsl.lang.formatter import format_source
from moedsl.lang.printer import quote
from moedsl.rules.check.options import built_targets
from moedsl.support.diagnostics import error, suggest, to_json
from moedsl.support.files import write_file
from moedsl.support.source import Source
from moedsl.support.text import visible

_MACHINES = re.compile(r"(\w+?)(?: *[xX*] *| +)(\d+)")
_RATE = re.compile(r"[0-9]+(\.[0-9]+)?(e-?[0-9]+)?")
_HEAD = """\
# moedsl plan {file}              the layout, its memory and its speed
# moedsl explain {file} tp        why a value is what it is
# moedsl compile {file} -o out    the recipe for Megatron Bridge
model {model}
{machines}   # without a number: the fewest GPUs that work
seq {seq}   # tokens of a sequence
{batch}   # sequences of a step; without it a rule chooses
{length}   # how long it trains; without it, Bridge's steps
{lr}   # without it, Bridge's for the task
{checkpoints}   # a folder that all nodes see
{wandb}   # Weights & Biases; without it, the log alone
fit first   # get it running; then `scale first`, then `throughput first`
"""
_PRETRAINING = """\
{data}   # without it mock data, which is for measuring speed only
"""
_SAMPLES = """\
{data}{folder}
{preprocessing}"""
_IMAGES = """\
{data}   # an Energon dataset: text with images
"""
_TUNING = """\
task {task}
{samples}\
weights hf {hf}   # `moedsl run` imports them first; or `weights "PATH"` of a checkpoint of Megatron
"""
_CHAT = 'set dataset.preprocessing = "chat"\n'
_ADAPTER = "adapter lora rank=8 alpha=16 targets=[{targets}]\n"
_FREE = (
    ("seq", "How long is a sequence, in tokens?", "4k", "4k"),
    ("length", "How long does it train, as in 2T tokens or 14 days?", "", "2T tokens"),
    ("lr", "Which learning rate?", "", ""),
    ("checkpoints", "Where do its checkpoints go?", "", "/shared/run"),
    ("wandb", "Which project of Weights & Biases?", "", "project"),
)
"""The questions with a free answer: the option, the question, its usual answer, and the example in a comment."""


def init(a: Namespace) -> int:
    """Write a first run file from the answers, with comments that name the next steps."""
    path = Path(a.file)
    if os.path.lexists(path):  # writing to a dangling link would make a file elsewhere
        raise Refused([error("init.exists", path=path)])
    library = load_stdlib()
    asked = (
        ("model", a.model, "Which model?", sorted(library.models), "qwen3_30b_a3b"),
        ("machines", a.machines, "Which GPUs, and how many?", sorted(library.hardware), "h100 x 16"),
        ("task", a.task, "What for?", TASKS, TASKS[0]),
    )
    missing = [f"--{option}" for option, given, *_ in asked if given is None]
    if missing and not sys.stdin.isatty():
        raise Refused([error("init.unanswered", missing=", ".join(missing))])
    model, machines, task = (given or _ask(question, known, usual) for _, given, question, known, usual in asked)
    free = {name: getattr(a, name) for name, *_ in _FREE}
    if missing:
        free |= {name: _said(question, usual) for name, question, usual, _ in _FREE if free[name] is None}
    model = library.called(model)
    made, _ = library.model(model) if model in library.models else (None, [])
    # Write the run file
    tuning, images = task in FINE_TUNES, made is not None and made.vision is not None
    example = "/data/images" if images else "/data/conversations" if tuning else "/data/tokens"
    data = f"data {quote(a.data)}" if a.data else f"{'' if tuning else '# '}data {quote(example)}"
    found = samples_of(Path(a.data)) if a.data and tuning and not images else None
    if found is not None:  # what `moedsl data stats` says of samples that are here
        data = found["statement"]
    lowest = {"pretrain": "3e-4 min=3e-5", "sft": "5e-6", "peft": "1e-4"}[task]
    given = {name: free[name] or example for name, *_, example in _FREE} | {"lr": free["lr"] or lowest}
    if free["lr"] and task == "pretrain" and _RATE.fullmatch(free["lr"]):
        given["lr"] += f" min={float(free['lr']) / 10:g}"  # Bridge's own may be above it
    stated = {
        "length": f"for {given['length']}", "lr": f"lr {given['lr']}",
        "checkpoints": f"checkpoints {quote(given['checkpoints'])}", "wandb": f"wandb {quote(given['wandb'])}",
    }  # fmt: skip
    batch = (found and found["batch"]) or 0
    more = _TUNING.replace("{samples}", _IMAGES if images else _SAMPLES) if tuning else _PRETRAINING
    text = (_HEAD + more).format(
        file=shlex.quote(visible(str(path).replace("\n", " "))),
        model=model,
        machines=_MACHINES.sub(r"\1 x \2", machines, count=1),
        batch=f"batch {batch}" if batch else f"# batch {32 if tuning else 1024}",
        seq=given["seq"],
        folder="" if found else "   # a folder with training.jsonl and validation.jsonl",
        preprocessing=_CHAT if found is None or any("+" not in k for k in found["keys"]) else "",
        task=task,
        **{name: text if free[name] else f"# {text}" for name, text in stated.items()},
        data=data,
        hf=quote(made.hf if made else "ORG/NAME"),
    )
    lora = Adapter(**defaults("lora"), method="lora")
    targets = [t for t in (built_targets(made, lora) if made else ()) if t not in _NOT_ATTENTION]
    adapter = _ADAPTER.format(targets=", ".join(targets)) if targets else "adapter lora rank=8 alpha=16\n"
    source = Source(str(path), text + adapter * (task == "peft"))
    result = compile_source(source, "check")
    if result.failed:
        raise Refused(result.diagnostics, result.sources)
    formatted, _ = format_source(source)
    next = f"moedsl plan {shlex.quote(str(path))}"
    code = console.written(path, formatted or source.text, f"; next: {next}")
    if a.json and not code:
        console.print_json({"version": 1, "file": str(path), "next": next})
    return code


_NOT_ATTENTION = ("linear_fc1", "linear_fc2", "fc1_latent_proj", "fc2_latent_proj", "router", "eh_proj")


def _said(question: str, usual: str) -> str:
    """Ask on the terminal for a free answer; an empty one means the usual one."""
    print(f"{folded(question, sys.stderr)} [{usual or 'none'}] ", end="", file=sys.stderr, flush=True)
    return sys.stdin.readline().strip() or usual


def _ask(question: str, known: Sequence[str], usual: str) -> str:
    """Ask on the terminal until the answer is known; an empty answer means the usual one."""
    print(folded(f"{question} ({', '.join(known)})", sys.stderr), file=sys.stderr)
    while True:
        print(f"[{usual}] ", end="", file=sys.stderr, flush=True)
        answer = sys.stdin.readline().strip() or usual
        machines = _MACHINES.fullmatch(answer) if " x " in usual else None
        name = machines[1] if machines else answer
        if name in known:
            return answer
        near = suggest(name, [*known]) or [f"write it as `{usual}`"]
        print(f"`{answer}` is not among them; {near[0]}", file=sys.stderr)


def fmt(a: Namespace) -> int:
    """Format files. A file that does not parse stays unchanged."""
    if a.json and "-" in a.files:
        print("--json lists files, and standard output has the text of `-`", file=sys.stderr)
        return 1
    files: list[dict[str, Any]] = []
    for file in a.files:  # its status: formatted, unchanged, would change or refused
        source, diagnostics = reader.read(file)
        text, status = None, "refused"
        if source is not None:
            text, diagnostics = format_source(source)
        if source is not None and text is not None:
            status = "unchanged"
            if file == "-" and not a.check:
                print_file(text)
            elif text != source.text and a.check:
                print(f"would change {file}", file=sys.stderr)
                status = "would change"
            elif text != source.text:
                more = write_file(Path(file), text)
                diagnostics, status = (*diagnostics, *more), "refused" if more else "formatted"
        sources = {source.name: source} if source else {}
        console.say(diagnostics, sources)
        files.append({"file": file, "status": status, "diagnostics": [to_json(d, sources) for d in diagnostics]})
    if a.json:
        console.print_json({"version": 1, "files": files})
    return int(any(one["status"] in ("refused", "would change") for one in files))
