"""Write the completion of a shell from the list of commands: their options, the words of an option, files."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from moedsl.cli.arguments import COMMANDS, Argument, Command

Options = Mapping[str, tuple[str, ...] | None]
"""The options of a command: the words that each takes, none for any text, None for an option without a value."""


def script(shell: str) -> str:
    """Write the completion script of bash, zsh or fish."""
    return {"bash": _bash, "zsh": _zsh, "fish": _fish}[shell]()


def options(command: Command) -> dict[str, tuple[str, ...] | None]:
    """List the options of a command with what each takes."""
    given = ((words, more) for words, more in command.arguments if words[0].startswith("-"))
    return {w: _takes(more) for words, more in given for w in words} | {"--help": None}


def _takes(more: Mapping[str, Any]) -> tuple[str, ...] | None:
    return None if more.get("action") == "store_true" else tuple(more.get("choices") or ())


def positional(command: Command) -> tuple[str, ...]:
    """List the words that an argument without a name takes: its choices, or the actions of the command."""
    choices = [w for a in command.arguments if not a[0][0].startswith("-") for w in a[1].get("choices") or ()]
    return (*choices, *command.actions)


def _bash() -> str:
    """Bash completes words from a case for each command and option, and files otherwise."""
    cases: list[str] = []
    for name, command in COMMANDS.items():
        own = options(command)
        for option, words in own.items():
            if words:
                cases.append(f'    "{name} {option}") words="{" ".join(words)}" ;;')
            elif words is not None:
                cases.append(f'    "{name} {option}") ;;')
        cases.append(f'    "{name} "*) words="{" ".join([*positional(command), *own])}" ;;')
    body = "\n".join(cases)
    return f"""# moedsl completion for bash: eval "$(moedsl completion bash)"
_moedsl() {{
  local word="${{COMP_WORDS[COMP_CWORD]}}" words=""
  if [ "$COMP_CWORD" -eq 1 ]; then
    words="{" ".join(COMMANDS)} --help --version"
  else
    case "${{COMP_WORDS[1]}} ${{COMP_WORDS[COMP_CWORD-1]}}" in
{body}
    esac
  fi
  COMPREPLY=($(compgen -W "$words" -- "$word"))
  case "$word" in -*) ;; *) [ "$COMP_CWORD" -eq 1 ] || COMPREPLY+=($(compgen -f -- "$word")) ;; esac
}}
complete -o filenames -F _moedsl moedsl
"""


def _zsh() -> str:
    """Zsh has its own descriptions of arguments."""
    commands = "\n".join(f"      {_quoted(f'{name}:{command.help}')}" for name, command in COMMANDS.items())
    cases = "\n".join(f"    {name}) _arguments {' '.join(_zsh_arguments(c))} ;;" for name, c in COMMANDS.items())
    return f"""#compdef moedsl
# moedsl completion for zsh: moedsl completion zsh > "${{fpath[1]}}/_moedsl"
_moedsl() {{
  if (( CURRENT == 2 )); then
    local -a commands=(
{commands}
    )
    _describe command commands
    return
  fi
  local command="${{words[2]}}"
  shift words
  (( CURRENT-- ))
  case "$command" in
{cases}
  esac
}}
if [ "$funcstack[1]" = _moedsl ]; then _moedsl "$@"; else compdef _moedsl moedsl; fi
"""


def _zsh_arguments(command: Command) -> Iterator[str]:
    for words, more in _named(command):
        takes = _takes(more)
        value = "" if takes is None else f":value:({' '.join(takes)})" if takes else ":value:_files"
        about = str(more.get("help") or "").replace("[", "(").replace("]", ")").replace(":", r"\:")
        yield from (_quoted(f"*{w}[{about}]{value}") for w in words)
    known = positional(command)
    yield _quoted(f"*: :({' '.join(known)})") if known else _quoted("*:file:_files")


def _fish() -> str:
    """Fish reads a line for each option."""
    lines = ["# moedsl completion for fish: moedsl completion fish > ~/.config/fish/completions/moedsl.fish"]
    for name, command in COMMANDS.items():
        lines.append(f"complete -c moedsl -n __fish_use_subcommand -f -a {name} -d {_quoted(command.help)}")
        inside = f"complete -c moedsl -n '__fish_seen_subcommand_from {name}'"
        for words, more in _named(command):
            flags = " ".join(f"-l {w[2:]}" if w.startswith("--") else f"-s {w[1:]}" for w in words)
            takes = _takes(more)
            value = "" if takes is None else f" -x -a '{' '.join(takes)}'" if takes else " -r"
            lines.append(f"{inside} {flags}{value} -d {_quoted(str(more.get('help') or ''))}")
        if known := positional(command):
            lines.append(f"{inside} -a '{' '.join(known)}'")
    return "\n".join(lines) + "\n"


def _named(command: Command) -> Iterator[Argument]:
    return (a for a in command.arguments if a[0][0].startswith("-"))


def _quoted(text: str) -> str:
    """Write a text as one word of zsh or fish."""
    return "'" + text.replace("'", "'\\''") + "'"
