"""Decide which environment variables a job may set, and why others are refused."""

from __future__ import annotations

import re

from moedsl.lang import ast
from moedsl.rules.rule import Rule
from moedsl.support import secrets
from moedsl.support.diagnostics import Diagnostic, error

OF_THE_RANK = frozenset(
    ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "NODE_RANK", "GROUP_RANK", "MASTER_ADDR", "MASTER_PORT")
)
"""Variables from which a process gets its rank and the master's address; the launch sets them."""
_OF_BASH = frozenset((
    "_", "BASH", "BASHOPTS", "BASHPID", "BASH_ALIASES", "BASH_ARGC", "BASH_ARGV", "BASH_ARGV0", "BASH_CMDS",
    "BASH_COMMAND", "BASH_ENV", "BASH_EXECUTION_STRING", "BASH_LINENO", "BASH_LOADABLES_PATH", "BASH_REMATCH",
    "BASH_SOURCE", "BASH_SUBSHELL", "BASH_VERSINFO", "BASH_VERSION", "BASH_XTRACEFD", "COMP_WORDBREAKS", "DIRSTACK",
    "ENV", "EPOCHREALTIME", "EPOCHSECONDS", "EUID", "FUNCNAME", "FUNCNEST", "GLOBIGNORE", "GROUPS", "HISTCMD",
    "HOSTNAME", "HOSTTYPE", "IFS", "LINENO", "MACHTYPE", "OLDPWD", "OPTARG", "OPTERR", "OPTIND", "OSTYPE",
    "PIPESTATUS", "POSIXLY_CORRECT", "PPID", "PS4", "PWD", "RANDOM", "SECONDS", "SHELL", "SHELLOPTS", "SHLVL",
    "SRANDOM", "UID",
))  # fmt: skip
"""Variables that bash itself sets or reads: a job would not get the value, or bash would read the script
differently."""
_LOADERS = re.compile(
    r"(LD_|DYLD_|PYTHON|GIT_|SSH_|BASH_FUNC|XDG_|OPENSSL_|PERL|RUBY|NODE_|GCC_|UCX_|OMPI_|PMIX_).*"
    r"|(CC|CXX|CPP|LD|AS|AR|MAKE|CUDACXX|CPATH|NVCC|PYTORCH_NVCC|EDITOR|VISUAL|PAGER|BROWSER|SHELL|MATPLOTLIBRC|TMPDIR|TEMP|TMP)"
    r"|.*(PATH|HOME|DIR|DIRS|PRELOAD|PLUGINS?|MODULES?|FLAGS|OPTIONS|OPTS?|COMMAND|CMD|EXECUTABLE|COMPILER|WRAPPER|FILE"
    r"|CACHE|BACKEND|HOOKS?|PREFIX)"
)
"""Variables that choose which code a program loads, or which files it reads and writes: paths, compilers and their
arguments, plugins. On the launching machine, only the shell may set them."""


def is_loader(name: str) -> bool:
    """Whether a variable chooses which code a program loads."""
    return _LOADERS.fullmatch(name) is not None


def refusal(name: str) -> str | None:
    """Return why a variable may not have this name, as the end of a sentence; None if it may."""
    if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", name):
        return "is not a name of a variable: letters, digits and _, no digit first"
    if name in OF_THE_RANK or name.startswith("SLURM_"):
        return "tells a process its rank, and the launch sets it"
    if name in _OF_BASH:
        return "belongs to the shell and would not reach the rank unchanged"
    if name.startswith("MOEDSL_"):
        return "belongs to the script of the job"
    return None


def refused(rule: Rule) -> Diagnostic | None:
    """Return an error for an `env` rule with a reserved name or a secret, whose value must not be in a file;
    else None."""
    if wrong := refusal(rule.name):
        return error("check.variable", rule.span, name=rule.name, wrong=wrong)
    value = rule.expr.value if isinstance(rule.expr, ast.String) else ""
    what = "a secret by its name" if secrets.is_secret_name(rule.name) else secrets.value_kind(value)
    return error("check.secret:name", rule.span, rule=rule.name, what=what) if what else None
