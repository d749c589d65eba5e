"""Run a command line. Each command imports what it needs, so that `--help` imports nothing else.

Exit codes: 0 fine, 1 the user's file is wrong or infeasible, 2 our bug. Data on stdout, messages on stderr.
"""

from __future__ import annotations

import argparse
import errno
import gc
import importlib
import os
import re
import signal
import sys
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from typing import NoReturn

from moedsl.cli.arguments import COMMANDS, EXAMPLES, GROUPS, Command
from moedsl.cli.terminal import Refused, UnwrittenError, columns, shown

_BLAS = "OPENBLAS_NUM_THREADS"
_SYSTEM = {
    errno.EACCES, errno.EFBIG, errno.ENOENT, errno.EPERM, errno.EIO, errno.ESTALE, errno.ENOSPC, errno.EDQUOT,
    errno.EROFS, errno.EMFILE, errno.ENFILE, errno.ETIMEDOUT, errno.ELOOP, errno.ENAMETOOLONG,
}  # fmt: skip
"""Errors of permissions, disks, networks and limits, which no check before the work can rule out."""


class _Told(KeyboardInterrupt):
    """The process was told to end by a signal; it cleans up as after Ctrl-C."""

    number = signal.SIGTERM


def _told(number: int, _: object) -> None:
    for each in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(each, signal.SIG_DFL)  # told again, it ends at once
    told = _Told()
    told.number = signal.Signals(number)
    raise told


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code."""
    if argv is None and "lsp" not in sys.argv[1:2]:  # a process of its own, whose children and files end with it
        for number in (signal.SIGTERM, signal.SIGHUP):
            if signal.getsignal(number) is signal.SIG_DFL:  # else it is ignored, as under nohup
                signal.signal(number, _told)
    with shown():
        try:
            return _run(sys.argv[1:] if argv is None else argv)
        except BrokenPipeError:
            _drop_output()
            sys.stderr.close()
            return 0
        except UnwrittenError as problem:
            _drop_output()
            return _say(1, f"the output cannot be written: {problem}")
        except KeyboardInterrupt as signalled:
            number = signalled.number if isinstance(signalled, _Told) else signal.SIGINT
            return _say(128 + number, "interrupted; no partial files were written")
        except OSError as problem:
            if problem.errno not in _SYSTEM:
                return _bug()
            file = f": {problem.filename}" * bool(problem.filename)
            return _say(1, f"error: the system failed: {problem.strerror}{file}")
        except Exception:  # a mistake of the user's is a diagnostic, so any other exception is our bug
            return _bug()


def _run(words: Sequence[str]) -> int:
    named = any(word in COMMANDS for word in words)
    try:
        arguments = parser_for(words[0] if words else "", whole=named).parse_args(words)
    finally:
        sys.stdout.flush()  # `--help` ends here
    try:
        os.getcwd()
    except FileNotFoundError:  # MKL and our own processes would fail in it, with errors of their own
        return _say(1, "error: the working directory was deleted: `cd` to one that exists")
    with _quick_imports():
        from moedsl.support.limits import TooLarge  # `--help` runs nothing

        command = function_of(arguments)
    try:
        code = command(arguments)
    except (Refused, TooLarge) as problem:
        from moedsl.cli import console

        if isinstance(problem, TooLarge):
            from moedsl.solver.solve import diagnostic

            problem = Refused([diagnostic(problem)])
        code = console.refused(arguments, problem)
    sys.stdout.flush()
    gc.freeze()  # Python is about to end, and its last collection would visit every object again
    return code


def function_of(arguments: argparse.Namespace) -> Callable[[argparse.Namespace], int]:
    """Import the function of the command in parsed arguments."""
    module, name = arguments.runs.split(".")
    return getattr(importlib.import_module(f"moedsl.cli.commands.{module}"), name)


def _say(code: int, text: str) -> int:
    print(text, file=sys.stderr)
    return code


def _bug() -> int:
    import traceback

    traceback.print_exc()
    return _say(
        2, "\nerror[internal]: this is a bug of moedsl, not of your file; please report it with the lines above"
    )


def _drop_output() -> None:
    """Discard the rest of the output; otherwise Python fails on it again when it ends, with exit code 120."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)


@contextmanager
def _quick_imports() -> Generator[None]:
    """Import NumPy without OpenBLAS's thread pool, and without the garbage collector; then freeze the imports.

    Matrix products here are small, and a pool costs 25 ms; collections cost 30 ms. A command makes few cycles, so the
    collector hardly runs afterwards.
    """
    own_threads = _BLAS not in os.environ
    if own_threads:
        os.environ[_BLAS] = "1"
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        gc.set_threshold(100_000)
        gc.enable()
        if own_threads:
            del os.environ[_BLAS]


class _Help(argparse.HelpFormatter):
    """Format a help text as wide as the terminal, and keep the line breaks of a text that has several lines, such as
    examples.

    argparse makes a formatter for each argument, and would import modules (3 ms) to measure the terminal.
    """

    def __init__(self, prog: str) -> None:
        super().__init__(prog, width=columns(80) - 2)

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        return text if "\n" in text else super()._fill_text(text, width, indent)


_CHOICE = r"invalid choice: '(?P<word>[^']*)' \(choose from (?P<known>.*)\)"
_OPTION = r"unrecognized arguments: (?:[^-]\S* )*(?P<word>--?\w[\w-]*)"


class _Parser(argparse.ArgumentParser):
    """Exit with code 1 for wrong arguments, which are the user's mistake, and suggest the nearest word."""

    options: Sequence[str] = ()
    """The options of all its commands, for suggestions: the top parser is the one that reports an unknown option."""

    def error(self, message: str) -> NoReturn:
        from moedsl.support.diagnostics import suggest  # only a mistake needs it

        self.print_usage(sys.stderr)
        choice, option = re.search(_CHOICE, message), re.search(_OPTION, message)
        known = re.findall(r"[\w-]+", choice["known"]) if choice else self.options
        found = choice or option
        near = "".join(f"help: {hint}\n" for hint in suggest(found["word"], [*known])) if found else ""
        said = re.sub(r" \(choose from .*\)$", "", message) if near else message  # the list would hide the suggestion
        self.exit(1, f"{self.prog}: {said}\n{near}")


class _Unread(argparse.ArgumentParser):
    """The parser of a command that was not typed: only its line of help is shown."""

    def __init__(self, **_: object) -> None:
        pass


def parser_for(word: str, whole: bool = True) -> argparse.ArgumentParser:
    """Make the parser for a command line that begins with `word`: of this command, or of all if none is called so;
    without `whole`, only with their names and help."""
    parser = _Parser(
        prog="moedsl", description="From a model, machines and a wish to a Megatron Bridge training recipe.",
        formatter_class=_Help,
    )  # fmt: skip
    parser.add_argument(
        "--version", action="store_true", help="print the version and the supported versions of Megatron Bridge"
    )
    parser.set_defaults(runs="integrations.version")
    commands = {word: COMMANDS[word]} if word in COMMANDS else COMMANDS
    if whole:
        _declare(parser, "command", commands)
    else:
        parser.epilog = _commands(columns(80) - 2)
        below = parser.add_subparsers(dest="command", metavar="COMMAND", help="one of these", parser_class=_Unread)
        for name in commands:
            below.add_parser(name)
    parser.options = ["--help", "--version", *_options(commands)]
    return parser


def _commands(width: int) -> str:
    """List the commands in their groups, in lines of at most `width` columns."""
    from textwrap import fill

    lines: list[str] = []
    for title, names in GROUPS.items():
        lines += [f"{title}:"]
        lines += [fill(COMMANDS[n].help, width, initial_indent=f"  {n:<11}", subsequent_indent=" " * 13) for n in names]
    return "\n".join(lines)


def _options(commands: Mapping[str, Command]) -> list[str]:
    own = [w for c in commands.values() for words, _ in c.arguments for w in words if w.startswith("-")]
    return own + [w for c in commands.values() for w in _options(c.actions)]


def _declare(parser: argparse.ArgumentParser, dest: str, commands: Mapping[str, Command]) -> None:
    """Add commands to a parser, and subcommands to the parsers of these commands."""
    below = parser.add_subparsers(dest=dest, metavar=dest.upper() if dest == "command" else "|".join(commands))
    for name, command in commands.items():
        one = below.add_parser(name, help=command.help, description=command.help, formatter_class=_Help)
        root, *action = one.prog.split()[1:]
        examples = (e for e in EXAMPLES[root] if not action or e.startswith(one.prog))
        one.epilog = "\n  ".join(["examples:", *examples])
        if dest == "command":
            one.set_defaults(runs=command.runs)
        for words, options in command.arguments:
            one.add_argument(*words, **options)
        if command.actions:
            _declare(one, "action", command.actions)


if __name__ == "__main__":
    sys.exit(main())
