"""List the commands and their arguments in the order of `--help`. It imports nothing that a command needs."""

from __future__ import annotations

import argparse
import importlib
from collections.abc import Mapping
from typing import Any

Argument = tuple[tuple[str, ...], dict[str, Any]]
"""The names and the keyword arguments for `add_argument`."""


class Command:
    """A command: its function as MODULE.FUNCTION of `moedsl.cli.commands`, its line of help, its arguments, and its
    subcommands, which run the same function. A NamedTuple would cost `--help` 2 ms."""

    def __init__(self, runs: str, help: str, *arguments: Argument, actions: Mapping[str, Command] = {}) -> None:
        self.runs, self.help, self.arguments, self.actions = runs, help, arguments, actions


def _arg(words: str, help: str = "", **options: Any) -> Argument:
    """Make an argument from its names and the placeholder of its value, as in "-o --output DIR", "file FILE?" (none or
    one), "files FILE*" (any number) and "files FILE+" (one or more)."""
    names = tuple(w for w in words.split() if w.startswith("-")) or (words.split()[0],)
    value = "".join(words.split(maxsplit=len(names))[len(names) :])
    if value.endswith(("?", "*", "+")):
        value, options["nargs"] = value[:-1], value[-1]
    return names, {"metavar": value or None, "help": help or None, **options}


def _flag(words: str, help: str) -> Argument:
    return tuple(words.split()), {"action": "store_true", "help": help}


def _number(words: str, help: str, reader: str, **options: Any) -> Argument:
    """Make an argument that the function `reader` of `moedsl.queries.amounts` parses, imported when the argument is
    given."""

    def read(text: str) -> Any:
        return getattr(importlib.import_module("moedsl.queries.amounts"), reader)(text)

    return _arg(words, help, type=read, **options)


class _Named(argparse.Action):
    """Store a name; an empty one is an error."""

    def __call__(self, parser: Any, namespace: Any, values: Any, option_string: str | None = None) -> None:
        if not values:
            raise argparse.ArgumentError(self, "a name is needed, and the text is empty")
        setattr(namespace, self.dest, values)


class _Place(argparse.Action):
    """Store where to write; refuse an empty text, which would be the working directory, and -, which would be a file
    name."""

    printed = False

    def __call__(self, parser: Any, namespace: Any, values: Any, option_string: str | None = None) -> None:
        what = "file" if self.metavar == "FILE" else "directory"
        if not values:
            raise argparse.ArgumentError(self, f"the text is empty: name a {what}, or leave it out")
        if values == "-" and not self.printed:
            text = f"- is not standard output here: name a {what}, such as ./- for this name"
            raise argparse.ArgumentError(self, text)
        setattr(namespace, self.dest, None if values == "-" else values)


class _Printed(_Place):
    """Store where to write; - is standard output, the default."""

    printed = True


def _named(words: str, help: str) -> Argument:
    return _arg(words, help, default="", action=_Named)


def _place(words: str, help: str, **options: Any) -> Argument:
    return _arg(words, help, action=_Place, **options)


_JSON = _flag("--json", "print JSON")
_SARIF = _flag("--sarif", "print SARIF 2.1.0, which code hosts show at the line")
_FILE = "a .moe file, or - for standard input"
_TEXT = _arg("-e --expression TEXT", "the program itself")
_LIKE = _named("--like RECIPE", "with the layout of this recipe of Bridge's, where the program does not pin another")
_TARGET = _named(
    "--target VERSION", "the release of Megatron Bridge, whatever the program states; `moedsl targets` lists them"
)
_PROGRAM = (_arg("file FILE?", _FILE), _TEXT, _LIKE)
_SENT = (
    _arg(
        "--cluster NAME?", "submit to this cluster; without a name to the run file's only one or its default", const=""
    ),
    _arg("--run NAME", "the run of a file that has several (default: all of them)"),
    _flag("--dryrun", "print what would be sent, and send nothing"),
    _flag("--full", "with --dryrun: print also every file that a script writes"),
    _arg("--only KIND", "with --dryrun: print only these files, whole", choices=("sbatch", "script", "manifest")),
)
_BACKEND = _arg(
    "--backend",
    "megatron_lm: pretrain_gpt.py of Megatron-LM instead of a recipe for Megatron Bridge",
    choices=("bridge", "megatron_lm"),
    default="bridge",
)
_DETACH = _flag("--detach", "return once all jobs are submitted; `jobs` and `logs` follow them")
_CONVERTED = (*_PROGRAM, *_SENT, _DETACH, _JSON)
_STAGES = ("parse", "check", "lower", "solve", "plan")
SECTIONS = (
    "meshes", "racks", "batch", "policy", "training", "samples", "adapter", "memory", "speed", "decisions",
    "environment", "experiment", "checkpoints", "walls", "parts", "ladder", "more-gpus", "next-best", "simpler",
    "nvidia", "at-4k", "advice", "measured", "container", "covers",
)  # fmt: skip
_PRINTED = (
    _flag("--full", "print the whole plan, not a page of it"),
    _arg("--section NAME", f"print one section of the whole plan: {', '.join(SECTIONS)}", choices=SECTIONS),
    _JSON,
    _arg("--stop-after", "print the output of this stage and stop", choices=_STAGES),
)
_BUDGET = (
    _number("--tokens N", "days and GPU-hours for a budget such as 10T or 500B", "tokens"),
    _number("--price P", "price of a GPU-hour: also print the cost of --tokens", "price"),
)
_RECIPE = (
    _arg("--gpu", "the hardware of a recipe without a plan"),
    _number("--world", "the number of GPUs of a recipe without a plan", "gpus"),
)
_ENV = _arg(
    "--env NAME=VALUE", "a variable of a script, which is never run; may be repeated", action="append", default=[]
)
_READ_ONLY = _flag(
    "--read-only", "run nothing: read what the source states, and say what it leaves open (default: Bridge runs it)"
)
_STOP = _number(
    "--stop SHARE", "the expected gain below which no run is worth it (default: 1%%)", "share", default=0.01
)
_PRINTED_FILE = _arg("-o --output FILE", "where to write it (default: standard output)", action=_Printed)
_PATHS = _arg("paths PATH+", "an experiment's id, a folder of runs, a log in the folder of its plan.json, or LOG=PLAN")
_WARMUP = _number("--warmup N", "iterations left out (default: 10, a third of a shorter run)", "whole")
_FOREIGN = _flag("--force", "overwrite a file that moedsl did not write, or that was edited")

COMMANDS: Mapping[str, Command] = {
    "init": Command(
        "run_files.init",
        "write a first run file: asks for model, GPUs, task, length and more",
        _place("file FILE?", "where to write it (default: run.moe); an existing file stays", default="run.moe"),
        _arg("--model", "the model, as `moedsl models` lists them"),
        _arg("--machines 'GPU x N'", "the GPUs, as `moedsl hardware` lists them, and their number"),
        _arg("--task", "pretrain, sft or peft", choices=("pretrain", "sft", "peft")),
        _arg("--data FOLDER", "the folder of the training data; samples that are here are measured"),
        _arg("--seq TOKENS", "the length of a sequence"),
        _arg("--length AMOUNT", "how long it trains: '2T tokens' or '14 days'"),
        _arg("--lr RATE", "the learning rate"),
        _arg("--checkpoints PATH", "where its checkpoints go"),
        _arg("--wandb PROJECT", "the project of Weights & Biases"),
        _JSON,
    ),
    "compile": Command(
        "compile.compile",
        "write recipe.py, overrides.txt, plan.json and the lock, and print the plan",
        *_PROGRAM,
        _TARGET,
        *_PRINTED,
        _place("-o --output DIR", "where to write (default: out)", default="out"),
        _flag("--force", "overwrite files that moedsl did not write, or that were edited"),
        _arg(
            "--emit", "launch: also write launch.py and job.sh, a NeMo-Run script to keep and edit", choices=("launch",)
        ),
        _arg("--cluster NAME", "the cluster of --emit launch (default: as in `run`)"),
        _BACKEND,
    ),
    "plan": Command(
        "plan.plan",
        "print the plan and write nothing",
        *_PROGRAM,
        _TARGET,
        *_PRINTED,
        _arg("--run NAME", "the run of a file that has several (default: a table of all)"),
        _flag(
            "--ladder", "also print what this phase may change, what the next phase would try, and the predicted gain"
        ),
        _flag("--lengths", "print instead the fewest GPUs for this sequence length, for twice and for four times it"),
        _number("--top K", "print instead the K best layouts", "layouts"),
        _number("--within SHARE", "the simplest layout with a step at most this much longer (default: 5%%)", "share"),
        _flag("--pareto", "print instead memory against speed, and GPUs against time"),
        *_BUDGET,
    ),
    "check": Command(
        "check.check",
        "print the errors and warnings of a file",
        _arg("files FILE*", _FILE),
        _TEXT,
        _LIKE,
        _JSON,
        _SARIF,
    ),
    "what-if": Command(
        "answers.what_if",
        "gain of other GPUs, lengths, number formats, freezing and sharding, with the same tokens a step",
        *_PROGRAM,
        _arg("--gpus NAME,NAME", "the other GPUs to compare (default: rented ones, and those that the file names)"),
        _JSON,
        *_BUDGET,
    ),
    "verify": Command(
        "verify.verify",
        "run recipes with the real Megatron Bridge, which builds them, and compare them with their plans",
        _arg(
            "files FILE*",
            "a folder that `compile` wrote, a recipe.py, a .moe file, or module:function; a recipe runs as you",
        ),
        _TEXT,
        _named("--target VERSION", "the release of Megatron Bridge for .moe files"),
        *_RECIPE,
        _flag(
            "--read-only", "run nothing: compare what the source states with the plan (default: Bridge runs the recipe)"
        ),
        _number("--jobs", "recipes checked at once (default: 2)", "judges", default=2),
        _JSON,
    ),
    "upgrade": Command(
        "recipes.upgrade",
        "say what another release of Megatron Bridge changes for a run or a recipe, and what keeps the old behaviour",
        _arg(
            "target FILE?",
            "a .moe file; a recipe.py (FILE:function) or module:function, which runs as you; a run_config.yaml; or a "
            "script, YAML or log of Megatron-LM",
        ),
        _TEXT,
        _arg("--to VERSION", "the release to go to", required=True),
        _named("--from VERSION", "the release that it is for (default: as the file states, else the installed one)"),
        _arg("--run NAME", "the run of a file that has several (default: every one)"),
        _ENV,
        *_RECIPE,
        _JSON,
    ),
    "rehearse": Command(
        "verify.rehearse",
        "train the plan, shrunk to a few processes, with NVIDIA's own pretrain() on this machine",
        *_PROGRAM,
        _arg("--run NAME", "the run of a file that has several (default: every one)"),
        _number("--ranks N", "processes at most (default: 8)", "ranks", default=8),
        _number("--iterations N", "steps (default: 3)", "steps", default=3),
        _number("--timeout SECONDS", "limit for each run (default: 600)", "seconds", default=600.0),
        _flag("--cpu", "on the CPU even where there are GPUs"),
        _place("--profile DIR", "write a trace of each rank there, for `moedsl profile`; it leaves out the first step"),
        _flag("--dryrun", "print what would run, and run nothing"),
        _place("-o --output DIR", "keep recipe, model, answers and logs there"),
        _JSON,
    ),
    "lint": Command(
        "recipes.lint",
        "check existing Megatron Bridge recipes against every rule, and point at the line",
        _arg(
            "files FILE+",
            "a recipe.py (FILE:function), or module:function, which run as you; a run_config.yaml; or a script, YAML "
            "or log of Megatron-LM",
        ),
        _READ_ONLY,
        _ENV,
        _arg("--gpu", "the hardware, if the function's name does not give it"),
        _number("--world", "the number of GPUs, if the function's name does not give it", "gpus"),
        _arg("--phase", "phase whose advice to give", choices=("fit", "scale", "throughput"), default="throughput"),
        _JSON,
        _SARIF,
    ),
    "import": Command(
        "recipes.import_",
        "write the .moe program of an existing recipe, or of a run of Megatron-LM",
        _arg(
            "recipe RECIPE",
            "a recipe.py (FILE:function) or module:function, which run as you; a run_config.yaml; or a script, YAML or "
            "log of Megatron-LM, or after -- its command line",
        ),
        _arg("command WORD*", "the other words of the command line after --"),
        _ENV,
        _arg("--gpu", "the hardware, if the recipe does not name it"),
        _number("--world", "the number of GPUs, if the recipe does not name it", "gpus"),
        _flag("--open", "leave the layout open: without the pins of what ran"),
        _PRINTED_FILE,
        _flag("--force", "overwrite the file"),
        _JSON,
    ),
    "diagnose": Command(
        "diagnose.diagnose",
        "find the cause of a failure in a log, how to confirm it, and the edit that fixes it",
        _arg("log", "a log of any size, - for standard input, a line of a log, or an id that `moedsl jobs` lists"),
        _arg("--run FILE", "the run file: try the edits on it, and use its own symptoms too"),
        _JSON,
    ),
    "profile": Command(
        "diagnose.profile",
        "say what a training step was spent on, from traces of Nsight Systems or PyTorch's profiler",
        _arg("traces TRACE+", "a trace of one rank: sqlite or .nsys-rep of Nsight Systems, JSON of PyTorch"),
        _arg("--run FILE", "the run file: compare with its plan, and use its own patterns of kernels too"),
        _JSON,
    ),
    "memory": Command(
        "diagnose.memory",
        "say what was allocated at the peak, from memory snapshots of PyTorch",
        _arg(
            "snapshots SNAPSHOT+",
            "a snapshot.pickle, which is read and not executed; its stage follows from the rank in the file's name, "
            "NAME_RANK.pickle, or SNAPSHOT=STAGE gives it",
        ),
        _arg("--run FILE", "the run file: compare with its plan, and use its own patterns of frames too"),
        _JSON,
    ),
    "diff": Command(
        "recipes.diff",
        "compare two runs: do they differ in the experiment, or only in how it runs",
        _arg(
            "sides A B*",
            "a .moe file (FILE:run), a compiled folder, plan.json, or a recipe.py or module:function, which run as you",
        ),
        _arg("-e --expression TEXT", "a program, placed after A and B", action="append"),
        _named("--like RECIPE", "compare one program with itself in the layout of this recipe of Bridge's"),
        *_RECIPE,
        _READ_ONLY,
        _ENV,
        _flag("--exit-code", "exit 1 unless it is the same experiment"),
        _JSON,
    ),
    "results": Command(
        "results.results",
        "compare what runs measured, from their logs, with their plans",
        _PATHS,
        _number("--seq TOKENS", "tokens of a sequence, if no plan gives it", "length"),
        _number("--gpus N", "the number of GPUs, if no plan gives it", "whole"),
        _number("--global-batch N", "sequences of a step, if no log or plan gives it", "whole"),
        _WARMUP,
        _arg(
            "--baseline OLD",
            "older runs, as PATH: exit 1 if a run is slower than its namesake there, beyond the noise of their steps",
            action="append",
        ),
        _number(
            "--tolerance SHARE", "the least change that counts, as 0.02 or 2%% (default: 2%%)", "share", default=0.02
        ),
        _place("--measured FILE", "also write lines that `moedsl calibrate` reads"),
        _flag("--force", "overwrite that file"),
        _JSON,
    ),
    "gap": Command(
        "diagnose.gap",
        "explain a measured speed: against the estimate, the nearest published run and NVIDIA's recipe",
        _arg("target LOG", "a log in the folder of its plan.json, LOG=PLAN, a folder, or an experiment's id"),
        _arg("--run FILE", "the run file of the log, in place of its plan.json"),
        _WARMUP,
        _JSON,
    ),
    "next": Command(
        "tune.next_",
        "propose the next experiment from what was measured: one change, and what it should gain",
        _PATHS,
        _arg("--run FILE", "the run file that is varied (default: the program of the fastest run's plan)"),
        _place("-o --output FILE", "write the run file of the next experiment; it must not exist"),
        _STOP,
        _JSON,
    ),
    "tune": Command(
        "tune.tune",
        "find a faster layout by itself: submit one job after the other, each a single change; resumable",
        _arg("file FILE", "a .moe file with one run and its cluster"),
        _arg("--cluster NAME?", "submit to this cluster; without a name to the file's only one", default="", const=""),
        _number("--budget N", "the most jobs in all", "jobs", required=True),
        _place("-o --output DIR", "where the way is kept, and gone on from (default: FILE's name with _tune)"),
        _flag("--no-preflight", "submit without the checks"),
        _STOP,
        _JSON,
    ),
    "fmt": Command(
        "run_files.fmt",
        "format .moe files; comments stay",
        _arg("files FILE+", "files to rewrite, or - to filter standard input"),
        _flag("--check", "write nothing; exit 1 if a file would change"),
        _JSON,
    ),
    "models": Command(
        "lists.models",
        "list the models that a run may name, or add one",
        _JSON,
        actions={
            "add": Command(
                "",
                "the .moe declaration of a Hugging Face config.json",
                _arg("config", "a Hugging Face config.json of an MoE model"),
                _arg("--name", "the name that runs will use"),
                _arg("--hf", "the Hugging Face id that AutoBridge resolves"),
                _arg(
                    "--ignore KEY",
                    "an unknown field that changes nothing of the model; may be repeated",
                    action="append",
                    default=[],
                ),
                _PRINTED_FILE,
                _flag("--force", "overwrite the file"),
                _JSON,
            )
        },
    ),
    "data": Command(
        "fine_tuning.data",
        "measure the data of a fine-tuning run",
        actions={
            "stats": Command(
                "",
                "the lengths of the samples of a JSONL file, and what they fill of a sequence",
                _arg("file FILE", "a file of JSON lines, or the folder of its training.jsonl"),
                _arg("--tokenizer NAME", "count with this tokenizer of Hugging Face, a folder or a name"),
                _number("--seconds N", "read at most this long (default: 60)", "seconds", default=60.0),
                _JSON,
            )
        },
    ),
    "calibrate": Command(
        "results.calibrate",
        "fit the constants of the estimates to measured runs",
        _arg("files RUNS+", 'JSON lines: {"run": "...", "tokens_per_s_per_gpu": 12440, "peak_gb": 66.3}'),
        _arg("-o --output FILE", "the .moe file to write (default: standard output)", action=_Printed),
        _FOREIGN,
        _flag("--from-scratch", "start from the initial values, not from the stdlib's constants"),
        _JSON,
    ),
    "report": Command(
        "answers.report",
        "write the plan as one HTML file",
        *_PROGRAM,
        _place("-o --output FILE", "default: report.html", default="report.html"),
        _flag("--pareto", "draw memory against speed and GPUs against time too"),
        _arg("--profile FILE", "draw a measured step too: what `moedsl profile --run FILE --json` printed"),
        _arg("--memory FILE", "draw memory over time too: what `moedsl memory --json` printed"),
        _FOREIGN,
        _JSON,
    ),
    "run": Command(
        "launch.run",
        "train on this machine, or submit to a cluster through NeMo-Run",
        *_PROGRAM,
        *_SENT,
        _BACKEND,
        _flag("--no-preflight", "skip the checks of Bridge and of the cluster, and those in the job's first seconds"),
        _flag(
            "--exclude-bad",
            "compare the nodes before the ranks start, and submit again without those that are bad (Slurm)",
        ),
        _DETACH,
        _flag(
            "--sequential",
            "start each run when the one before it has ended, even if it failed (default: the scheduler decides)",
        ),
        _JSON,
    ),
    "weights": Command(
        "fine_tuning.weights",
        "import the weights of a fine-tuning run from Hugging Face, or export what it trained",
        actions={
            "import": Command("", "import the weights that a run names, unless they are there", *_CONVERTED),
            "export": Command(
                "",
                "write a run's checkpoint as Hugging Face has it; of adapters, those alone",
                *_CONVERTED,
                _arg("--to FOLDER", "the new folder, as the job sees it", required=True),
                _arg("--from FOLDER", "the checkpoint (default: the run's `checkpoint.save`)", dest="checkpoint"),
            ),
        },
    ),
    "clusters": Command(
        "lists.clusters",
        "list the clusters that `run --cluster` knows",
        _arg("file FILE?", "a .moe file whose clusters are listed too"),
        _TEXT,
        _JSON,
    ),
    "jobs": Command(
        "jobs.jobs",
        "list what `moedsl run --cluster` submitted, with its status",
        _arg("id ID?", "one experiment, job by job"),
        _number("--last N", "how many (default: 10)", "experiments", default=10),
        _JSON,
    ),
    "logs": Command(
        "jobs.logs",
        "print the logs of the jobs of an experiment",
        _arg("id ID"),
        _arg("job JOB?", "one of its jobs"),
        _flag("-f --follow", "follow them until they end; exit code 1 if one fails"),
        _JSON,
    ),
    "watch": Command(
        "results.watch",
        "follow a run while it trains: progress and speed next to the plan, goodput, slow nodes, alarms",
        _arg("target ID", "an experiment's id, a log in the folder of its plan.json, LOG=PLAN, or a folder of runs"),
        _flag("--once", "answer once (default: until the run ends, if the output is a terminal)"),
        _number("--every SECONDS", "how often to answer (default: 15)", "seconds"),
        _place("--page FILE", "also write an HTML page with the curves, which the browser loads again by itself"),
        _FOREIGN,
        _JSON,
    ),
    "cancel": Command("jobs.cancel", "cancel the jobs of an experiment", _arg("id ID"), _JSON),
    "targets": Command(
        "lists.targets",
        "list the releases of Megatron Bridge that recipes are written for, or fetch one to verify with",
        _JSON,
        actions={
            "add": Command(
                "",
                "fetch releases in addition to the installed one, once; torch is shared",
                _arg("versions VERSION+", "a release, such as 0.5"),
                _JSON,
            )
        },
    ),
    "hardware": Command("lists.hardware", "list the hardware that a run may name", _JSON),
    "schema": Command(
        "integrations.schema",
        "print the JSON Schema of plan.json, or of what `results --json` prints",
        _arg("what WHAT?", "plan (default) or results", choices=("plan", "results"), default="plan"),
    ),
    "explain": Command(
        "check.explain",
        "explain the values of a run, a rule, a diagnostic or a name",
        _arg(
            "what WHAT*",
            "a .moe file (or -) and names such as tp or model.tensor_model_parallel_size; or ids such as "
            "std.mesh.heads, words of a plan such as TIGHT, or `rules` for all of them",
        ),
        _TEXT,
        _LIKE,
        _arg("--run NAME", "the run of a file that has several"),
        _JSON,
    ),
    "completion": Command(
        "integrations.completion",
        "print the completion script of a shell",
        _arg("shell SHELL", "bash or zsh", choices=("bash", "zsh")),
    ),
    "lsp": Command(
        "integrations.lsp",
        "serve editors: the language server on standard input and output",
        _flag("--stdio", "accepted because some clients pass it; it changes nothing"),
    ),
    "mcp": Command(
        "integrations.mcp",
        "serve assistants: the Model Context Protocol on standard input and output",
        _flag("--allow-recipes", "also offer to verify a recipe.py, which then runs as you"),
    ),
    "serve": Command(
        "integrations.serve",
        "serve a page to plan on: an editor next to the plan, the report and what-if",
        _arg("--host ADDRESS", "where to listen (default: 127.0.0.1, this machine alone)", default="127.0.0.1"),
        _number("--port", "the port (default: 8642; 0 takes a free one)", "port", default=8642),
        _arg("--name HOST", "a name under which others reach it; may be repeated", action="append", default=[]),
        _number("--processes", "programs planned at once (default: one for each core)", "processes", default=0),
    ),
}

GROUPS: Mapping[str, tuple[str, ...]] = {
    "Plan": ("init", "plan", "check", "explain", "what-if", "report", "serve", "data"),
    "Recipes": ("compile", "verify", "rehearse", "import", "lint", "diff", "upgrade", "targets"),
    "Jobs": ("run", "clusters", "weights", "jobs", "logs", "watch", "cancel"),
    "After a run": ("diagnose", "results", "gap", "profile", "memory", "next", "tune", "calibrate"),
    "Names and tools": ("models", "hardware", "fmt", "schema", "completion", "lsp", "mcp"),
}
"""The commands by what they are for, in the order of `--help` and docs/commands.md."""

STARTS: Mapping[str, str] = {
    "a model and machines": "moedsl plan -e 'qwen3_30b_a3b; h100 x 16; throughput first'",
    "a job to prepare": "moedsl init",
    "a Megatron Bridge recipe, or its run_config.yaml": "moedsl import recipe.py",
    "a script, a YAML file or a log of Megatron-LM": "moedsl import pretrain.sh",
    "a config.json of Hugging Face": "moedsl models add config.json",
    "the log of a run that died": "moedsl diagnose train.log",
    "the log of a run that is slow": "moedsl gap train.log=out/plan.json",
    "a trace of Nsight Systems or PyTorch's profiler": "moedsl profile rank0.sqlite",
    "a memory snapshot of PyTorch": "moedsl memory snapshot.pickle",
}
"""What a user may come with, and the command to start with. `moedsl` alone and docs/start.md show it."""

EXAMPLES: Mapping[str, tuple[str, ...]] = {
    "init": ("moedsl init", "moedsl init run.moe --model qwen3_30b_a3b --machines 'h100 x 16' --task sft"),
    "compile": ("moedsl compile run.moe -o out", "moedsl compile run.moe --emit launch --cluster NAME"),
    "plan": (
        "moedsl plan run.moe",
        "moedsl plan -e 'qwen3_235b_a22b; gb200 x 64; throughput first' --top 5",
        "moedsl plan run.moe --section memory",
        "moedsl plan run.moe --tokens 15T --price 3",
    ),
    "check": ("moedsl check run.moe", "moedsl check --sarif run.moe other.moe"),
    "what-if": ("moedsl what-if run.moe",),
    "verify": ("moedsl verify out", "moedsl verify recipe.py --gpu h100 --world 16"),
    "upgrade": (
        "moedsl upgrade run.moe --to 0.7",
        "moedsl upgrade recipe.py --from 0.5 --to 0.6 --gpu h100 --world 64",
        "moedsl upgrade pretrain.sh --from 0.5 --to 0.6 --gpu h100 --world 64",
    ),
    "rehearse": ("moedsl rehearse run.moe --dryrun", "moedsl rehearse run.moe --ranks 4 -o kept"),
    "lint": ("moedsl lint recipe.py", "moedsl lint --read-only --gpu gb200 --world 64 recipe.py:pretrain"),
    "import": ("moedsl import recipe.py -o run.moe", "moedsl import run_config.yaml --gpu h100 --world 64"),
    "diagnose": ("moedsl diagnose train.log", "moedsl diagnose train.log --run run.moe"),
    "profile": ("moedsl profile rank0.sqlite --run run.moe",),
    "memory": ("moedsl memory snapshot_*.pickle --run run.moe", "moedsl memory mine.pickle=1 --run run.moe"),
    "diff": (
        "moedsl diff old.moe new.moe",
        "moedsl diff HEAD~1:run.moe run.moe",
        "moedsl diff run.moe --like qwen3_30b_a3b_pretrain_16gpu_h100_bf16_config",
    ),
    "results": ("moedsl results out/train.log", "moedsl results train.log=out/plan.json --measured runs.jsonl"),
    "gap": ("moedsl gap train.log=out/plan.json", "moedsl gap out/train.log --json"),
    "next": ("moedsl next out", "moedsl next out --run run.moe -o next.moe"),
    "tune": ("moedsl tune run.moe --budget 8",),
    "data": ("moedsl data stats /data/conversations",),
    "weights": ("moedsl weights import run.moe --cluster", "moedsl weights export run.moe --to /models/mine --cluster"),
    "mcp": ("moedsl mcp",),
    "serve": ("moedsl serve", "moedsl serve --port 0"),
    "fmt": ("moedsl fmt run.moe", "moedsl fmt --check run.moe"),
    "models": ("moedsl models", "moedsl models add config.json --name mine -o mine.moe"),
    "calibrate": ("moedsl calibrate runs.jsonl -o calibration.moe",),
    "report": ("moedsl report run.moe -o plan.html",),
    "run": ("moedsl run run.moe --cluster NAME --dryrun", "moedsl run run.moe --cluster NAME"),
    "clusters": ("moedsl clusters",),
    "jobs": ("moedsl jobs", "moedsl jobs ID"),
    "logs": ("moedsl logs ID -f",),
    "watch": ("moedsl watch ID", "moedsl watch out/train.log --once --json", "moedsl watch ID --page run.html"),
    "cancel": ("moedsl cancel ID",),
    "targets": ("moedsl targets", "moedsl targets add 0.5"),
    "hardware": ("moedsl hardware",),
    "schema": ("moedsl schema > plan.schema.json", "moedsl schema results > results.schema.json"),
    "explain": ("moedsl explain run.moe tp", "moedsl explain TIGHT", "moedsl explain rules"),
    "completion": ('eval "$(moedsl completion bash)"',),
    "lsp": ("moedsl lsp",),
}
"""Examples for the end of each command's `--help`."""
