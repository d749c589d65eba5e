"""The command line: words to commands. Each command imports what it needs, so that `--help` imports nothing else.

Exit codes: 0 fine, 1 the user's file is wrong or infeasible, 2 our bug. Data on stdout, talk on stderr.
"""

from __future__ import annotations

import argparse
import gc
import importlib
import os
import sys
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, NoReturn

Commands = Any
"""argparse's subparsers, whose class has no public name."""
_PHASES = ("fit", "scale", "throughput")
_BLAS = "OPENBLAS_NUM_THREADS"
_STAGES = ("parse", "check", "lower", "solve", "plan")


def main(argv: Sequence[str] | None = None) -> int:
    """Runs one command and returns its exit code."""
    words = sys.argv[1:] if argv is None else argv
    arguments = _parser(words[0] if words else "").parse_args(words)
    try:
        with _one_blas_thread(), _no_collections():
            module = importlib.import_module(f"moedsl.cli.commands.{arguments.module}")
        code = module.run(arguments)
        gc.freeze()  # Python is about to end, and would look at all of it once more
        return code
    except BrokenPipeError:
        sys.stderr.close()
        return 0
    except KeyboardInterrupt:
        print("interrupted; no partial files were written", file=sys.stderr)
        return 130
    except Exception:  # a mistake of the user's is a diagnostic, so whatever arrives here is ours
        return _bug()


@contextmanager
def _one_blas_thread() -> Generator[None]:
    """NumPy is imported without OpenBLAS's pool of threads: the products here are small, and a pool costs 25 ms."""
    if _BLAS in os.environ:
        yield
        return
    os.environ[_BLAS] = "1"
    try:
        yield
    finally:
        del os.environ[_BLAS]


@contextmanager
def _no_collections() -> Generator[None]:
    """Imports without the garbage collector, and nothing of them looked at again: they stay, and it costs 30 ms. A
    command leaves few cycles behind, so the collector then looks seldom."""
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        gc.set_threshold(20_000)
        gc.enable()


class _Parser(argparse.ArgumentParser):
    """Wrong words on the command line are the user's mistake: exit code 1."""

    def error(self, message: str) -> NoReturn:
        self.print_usage(sys.stderr)
        self.exit(1, f"{self.prog}: {message}\n")


def _bug() -> int:
    import traceback

    traceback.print_exc()
    print(
        "\nerror[internal]: this is a bug of moedsl, not of your file; please report it with the lines above",
        file=sys.stderr,
    )
    return 2


def _parser(word: str) -> argparse.ArgumentParser:
    """The parser for a command line that begins with a word: of one command, or of all where it names none."""
    parser = _Parser(
        prog="moedsl", description="From a model, machines and a wish to a Megatron Bridge training recipe."
    )
    parser.add_argument(
        "--version", action="store_true", help="print the version and the supported versions of Megatron Bridge"
    )
    commands = parser.add_subparsers(dest="command", metavar="COMMAND")
    parser.set_defaults(module="version", parser=parser)
    for declare in [_COMMANDS[word]] if word in _COMMANDS else dict.fromkeys(_COMMANDS.values()):
        declare(commands)
    return parser


def _explain(commands: Commands) -> None:
    parser = _command(commands, "explain", "explain the values of a run, a rule, a diagnostic or a name")
    parser.add_argument(
        "what",
        nargs="*",
        metavar="WHAT",
        help="a .moe file (or -) and names such as tp or model.tensor_model_parallel_size; or ids such as "
        "std.mesh.heads, or `rules` for all of them",
    )
    parser.add_argument("-e", "--expression", metavar="TEXT", help="the program itself, instead of a file")
    parser.add_argument("--run", metavar="NAME", help="the run of a file that has several")
    parser.add_argument("--json", action="store_true", help="print JSON")


def _command(commands: Commands, name: str, help: str) -> argparse.ArgumentParser:
    parser = commands.add_parser(name, help=help, description=help)
    parser.set_defaults(module=name)
    return parser


def _compile(commands: Commands) -> None:
    parser = _command(commands, "compile", "write recipe.py, overrides.txt, plan.json and the lock, and print the plan")
    _program(parser)
    _printed(parser)
    parser.add_argument("-o", "--output", metavar="DIR", default="out", help="where to write (default: out)")
    text = "overwrite files that moedsl did not write, or that were edited"
    parser.add_argument("--force", action="store_true", help=text)
    text = "launch: also write launch.py and job.sh, a NeMo-Run script to keep and edit"
    parser.add_argument("--emit", choices=("launch",), help=text)
    parser.add_argument("--cluster", metavar="NAME", help="the cluster of --emit launch (default: as in `run`)")


def _plan(commands: Commands) -> None:
    parser = _command(commands, "plan", "print the plan and write nothing")
    _program(parser)
    _printed(parser)
    text = "also print what this phase may change, what the next phase would try, and the predicted gain"
    parser.add_argument("--ladder", action="store_true", help=text)
    text = "print instead the fewest GPUs for this sequence length, for twice and for four times it"
    parser.add_argument("--lengths", action="store_true", help=text)
    parser.add_argument("--top", type=_amount("layouts"), metavar="K", help="print instead the K best layouts")
    text = "print instead memory against speed, and GPUs against time"
    parser.add_argument("--pareto", action="store_true", help=text)
    _budget(parser)


def _check(commands: Commands) -> None:
    parser = _command(commands, "check", "print the errors and warnings of a file")
    _program(parser, "files", "*")
    parser.add_argument("--json", action="store_true", help="print JSON")


def _printed(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.add_argument("--stop-after", choices=_STAGES, help="print the output of this stage and stop")


def _program(parser: argparse.ArgumentParser, name: str = "file", count: str = "?") -> None:
    parser.add_argument(name, nargs=count, metavar="FILE", help="a .moe file, or - for standard input")
    parser.add_argument("-e", "--expression", metavar="TEXT", help="the program itself")


def _what_if(commands: Commands) -> None:
    help = "gain of other GPUs, lengths, number formats, freezing and sharding, with the same tokens a step"
    parser = _command(commands, "what-if", help)
    parser.set_defaults(module="what_if")
    _program(parser)
    parser.add_argument("--json", action="store_true", help="print JSON")
    _budget(parser)


def _budget(parser: argparse.ArgumentParser) -> None:
    text = "days and GPU-hours for a budget of tokens, such as 10T or 500B"
    parser.add_argument("--tokens", type=_amount("tokens"), metavar="N", help=text)
    text = "price of a GPU-hour: also print the cost of --tokens"
    parser.add_argument("--price", type=_amount("price"), metavar="P", help=text)


def _amount(name: str) -> Callable[[str], Any]:
    """A reader of `questions.amounts`, imported when an argument needs it."""

    def read(text: str) -> Any:
        return getattr(importlib.import_module("moedsl.queries.amounts"), name)(text)

    return read


def _verify(commands: Commands) -> None:
    parser = _command(
        commands, "verify", "build recipes with the real Megatron Bridge and compare them with their plans"
    )
    parser.add_argument(
        "files",
        nargs="+",
        metavar="FILE",
        help="a folder that `compile` wrote, a recipe.py, a .moe file, or module:function",
    )
    parser.add_argument("--gpu", help="the hardware of a recipe without a plan")
    parser.add_argument("--world", type=int, help="the number of GPUs of a recipe without a plan")
    parser.add_argument("--jobs", type=int, default=2, help="recipes checked at once (default: 2)")
    parser.add_argument("--json", action="store_true")


def _rehearse(commands: Commands) -> None:
    help = "train the plan, shrunk to a few processes, with NVIDIA's own pretrain() on this machine"
    parser = _command(commands, "rehearse", help)
    _program(parser)
    parser.add_argument("--run", metavar="NAME", help="the run of a file that has several (default: every one)")
    parser.add_argument("--ranks", type=_amount("ranks"), metavar="N", default=8, help="processes at most (default: 8)")
    parser.add_argument("--iterations", type=_amount("steps"), metavar="N", default=3, help="steps (default: 3)")
    parser.add_argument(
        "--timeout", type=float, metavar="SECONDS", default=600.0, help="limit for each run (default: 600)"
    )
    parser.add_argument("--cpu", action="store_true", help="on the CPU even where there are GPUs")
    parser.add_argument("--dryrun", action="store_true", help="print what would run, and run nothing")
    parser.add_argument("-o", "--output", metavar="DIR", help="keep recipe, model, answers and logs there")
    parser.add_argument("--json", action="store_true")


def _diagnose(commands: Commands) -> None:
    parser = _command(
        commands, "diagnose", "find the cause of a failure in a log, how to confirm it, and the edit that fixes it"
    )
    parser.add_argument("log", help="a log file of any size, - for standard input, or a line of a log")
    parser.add_argument("--run", metavar="FILE", help="the run file: try the edits on it, and use its own symptoms too")
    parser.add_argument("--json", action="store_true")


def _lint(commands: Commands) -> None:
    parser = _command(
        commands, "lint", "check existing Megatron Bridge recipes against every rule, and point at the line"
    )
    parser.add_argument("files", nargs="+", metavar="FILE", help="a recipe.py (FILE:function), or module:function")
    parser.add_argument("--gpu", help="the hardware, if the function's name does not give it")
    parser.add_argument("--world", type=int, help="the number of GPUs, if the function's name does not give it")
    parser.add_argument("--phase", choices=_PHASES, default="throughput", help="phase whose advice to give")
    parser.add_argument("--json", action="store_true")


def _diff(commands: Commands) -> None:
    parser = _command(commands, "diff", "compare two runs: do they differ in the experiment, or only in how it runs")
    parser.add_argument(
        "sides",
        nargs="*",
        metavar="A B",
        help="a .moe file (FILE:run), a compiled folder, plan.json, recipe.py, module:function or overrides",
    )
    parser.add_argument("-e", "--expression", action="append", metavar="TEXT", help="a program, placed after A and B")
    parser.add_argument("--gpu", help="the hardware of a recipe without a plan")
    parser.add_argument("--world", type=int, help="the number of GPUs of a recipe without a plan")
    parser.add_argument("--exit-code", action="store_true", help="exit 1 unless it is the same experiment")
    parser.add_argument("--json", action="store_true")


def _results(commands: Commands) -> None:
    parser = _command(commands, "results", "compare what runs measured, from their logs, with their plans")
    text = "an experiment's id, a folder of runs, a log in the folder of its plan.json, or LOG=PLAN"
    parser.add_argument("paths", nargs="+", metavar="PATH", help=text)
    parser.add_argument(
        "--seq", type=_amount("length"), metavar="TOKENS", help="tokens of a sequence, if no plan gives it"
    )
    parser.add_argument("--gpus", type=_amount("whole"), metavar="N", help="the number of GPUs, if no plan gives it")
    parser.add_argument(
        "--global-batch", type=_amount("whole"), metavar="N", help="sequences of a step, if no log or plan gives it"
    )
    text = "iterations left out (default: 10, a third of a shorter run)"
    parser.add_argument("--warmup", type=_amount("whole"), metavar="N", help=text)
    parser.add_argument("--measured", metavar="FILE", help="also write lines that `moedsl calibrate` reads")
    parser.add_argument("--force", action="store_true", help="overwrite that file")
    parser.add_argument("--json", action="store_true")


def _fmt(commands: Commands) -> None:
    parser = _command(commands, "fmt", "format .moe files; comments stay")
    parser.add_argument("files", nargs="+", metavar="FILE", help="files to rewrite, or - to filter standard input")
    parser.add_argument("--check", action="store_true", help="write nothing; exit 1 if a file would change")


def _run(commands: Commands) -> None:
    """run starts what a file plans, and clusters lists where."""
    parser = _command(commands, "run", "train on this machine, or submit to a cluster through NeMo-Run")
    _program(parser)
    text = "submit to this cluster; without a name to the run file's only one or its default"
    parser.add_argument("--cluster", nargs="?", const="", metavar="NAME", help=text)
    parser.add_argument("--run", metavar="NAME", help="the run of a file that has several (default: all of them)")
    parser.add_argument("--dryrun", action="store_true", help="print exactly what would be sent, and send nothing")
    text = "skip the checks of Bridge and of the cluster, and those in the job's first seconds"
    parser.add_argument("--no-preflight", action="store_true", help=text)
    parser.add_argument(
        "--detach", action="store_true", help="return once all jobs are submitted; `jobs` and `logs` follow them"
    )
    text = (
        "start each run of a file when the one before it has ended, even if it failed (default: the scheduler decides)"
    )
    parser.add_argument("--sequential", action="store_true", help=text)
    parser.add_argument("--json", action="store_true", help="print JSON")
    clusters = _command(commands, "clusters", "list the clusters that `run --cluster` knows")
    clusters.add_argument("file", nargs="?", metavar="FILE", help="a .moe file whose clusters are listed too")
    clusters.add_argument("--json", action="store_true")


def _submitted(commands: Commands) -> None:
    """jobs, logs and cancel read what NeMo-Run keeps of `moedsl run --cluster`."""
    jobs = _command(commands, "jobs", "list what `moedsl run --cluster` submitted, with its status")
    jobs.add_argument("id", nargs="?", metavar="ID", help="one experiment, job by job")
    jobs.add_argument("--last", type=_amount("experiments"), default=10, metavar="N", help="how many (default: 10)")
    jobs.add_argument("--json", action="store_true", help="print JSON")
    logs = _command(commands, "logs", "print the logs of the jobs of an experiment")
    logs.add_argument("id", metavar="ID")
    logs.add_argument("job", nargs="?", metavar="JOB", help="one of its jobs")
    logs.add_argument(
        "-f", "--follow", action="store_true", help="follow them until they end; exit code 1 if one fails"
    )
    cancel = _command(commands, "cancel", "cancel the jobs of an experiment")
    cancel.add_argument("id", metavar="ID")


def _report(commands: Commands) -> None:
    parser = _command(commands, "report", "write the plan as one HTML file")
    _program(parser)
    parser.add_argument("-o", "--output", metavar="FILE", default="report.html", help="default: report.html")
    parser.add_argument("--pareto", action="store_true", help="draw memory against speed and GPUs against time too")
    parser.add_argument("--force", action="store_true", help="overwrite a file that moedsl did not write")


def _calibrate(commands: Commands) -> None:
    parser = _command(commands, "calibrate", "fit the constants of the speed estimate to measured runs")
    parser.add_argument(
        "files", nargs="+", metavar="RUNS", help='JSON lines: {"run": "...", "tokens_per_s_per_gpu": 12440}'
    )
    parser.add_argument("-o", "--output", metavar="FILE", help="the .moe file to write (default: standard output)")
    parser.add_argument("--force", action="store_true", help="overwrite a file that moedsl did not write")
    parser.add_argument(
        "--from-scratch", action="store_true", help="start from the initial values, not from the stdlib's constants"
    )


def _models(commands: Commands) -> None:
    parser = _command(commands, "models", "list the models that a run may name, or add one")
    parser.add_argument("--json", action="store_true")
    more = parser.add_subparsers(dest="action", metavar="add")
    add = more.add_parser("add", help="the .moe declaration of a Hugging Face config.json")
    add.add_argument("config", help="a Hugging Face config.json of an MoE model")
    add.add_argument("--name", help="the name that runs will use")
    add.add_argument("--hf", help="the Hugging Face id that AutoBridge resolves")
    add.add_argument("-o", "--output", metavar="FILE", help="where to write it (default: standard output)")
    add.add_argument("--force", action="store_true", help="overwrite the file")


def _schema(commands: Commands) -> None:
    _command(commands, "schema", "print the JSON Schema of plan.json")


def _hardware(commands: Commands) -> None:
    parser = _command(commands, "hardware", "list the hardware that a run may name")
    parser.add_argument("--json", action="store_true")


def _lsp(commands: Commands) -> None:
    parser = _command(commands, "lsp", "serve editors: the language server on standard input and output")
    parser.add_argument(
        "--stdio", action="store_true", help="accepted because some clients pass it; it changes nothing"
    )


_COMMANDS: Mapping[str, Callable[[Commands], None]] = {
    "compile": _compile,
    "plan": _plan,
    "check": _check,
    "what-if": _what_if,
    "verify": _verify,
    "rehearse": _rehearse,
    "lint": _lint,
    "diagnose": _diagnose,
    "diff": _diff,
    "results": _results,
    "fmt": _fmt,
    "models": _models,
    "calibrate": _calibrate,
    "report": _report,
    "run": _run,
    "clusters": _run,
    "jobs": _submitted,
    "logs": _submitted,
    "cancel": _submitted,
    "hardware": _hardware,
    "schema": _schema,
    "explain": _explain,
    "lsp": _lsp,
}
"""What declares each command, in the order of `--help`: those of all take 10 ms."""


if __name__ == "__main__":
    sys.exit(main())
