"""`moedsl completion`: print the completion script of bash or zsh, which shtab makes from the parser of all commands.

The words of `choices` complete as such. Every other value may be the name of a file, and completes as one.
"""

from __future__ import annotations

from argparse import ArgumentParser, Namespace, _SubParsersAction  # pyright: ignore[reportPrivateUsage]

import shtab

from moedsl.cli.main import parser_for


def run(a: Namespace) -> int:
    """Print the script of a shell."""
    parser = parser_for("")
    complete_files(parser)
    print(shtab.complete(parser, a.shell))
    return 0


def complete_files(parser: ArgumentParser) -> None:
    """Tell shtab which arguments take any text, in this parser and in those of its subcommands."""
    for action in parser._actions:  # pyright: ignore[reportPrivateUsage]
        if isinstance(action, _SubParsersAction):
            for command in action.choices.values():
                complete_files(command)
        elif action.choices is None and action.nargs != 0:
            action.complete = shtab.FILE  # pyright: ignore[reportAttributeAccessIssue], the attribute is shtab's
