"""Translate the machine's pip configuration for uv, which reads neither pip.conf nor PIP_*."""

from __future__ import annotations

import os
import subprocess
from ast import literal_eval
from pathlib import Path

# pip's option -> uv's variable, and what joins several values there
UV_WORDS = {
    "index-url": ("UV_DEFAULT_INDEX", " "),
    "extra-index-url": ("UV_INDEX", " "),
    "find-links": ("UV_FIND_LINKS", ","),
    "cert": ("SSL_CERT_FILE", ""),
    "default-timeout": ("UV_HTTP_TIMEOUT", ""),
    "timeout": ("UV_HTTP_TIMEOUT", ""),
    "no-index": ("UV_NO_INDEX", ""),
    "trusted-host": ("UV_INSECURE_HOST", " "),
}


def read(python: Path) -> dict[str, str]:
    """Return pip's options; pip itself resolves files, PIP_* and their precedence."""
    done = subprocess.run([python, "-m", "pip", "config", "list"], capture_output=True, text=True, check=True)
    scopes: dict[str, dict[str, str]] = {"global": {}, "install": {}, ":env:": {}}
    for line in done.stdout.splitlines():
        key, _, value = line.partition("=")
        scope, _, option = key.rpartition(".")
        if scope in scopes:
            scopes[scope][option.replace("_", "-")] = str(literal_eval(value))
    return scopes["global"] | scopes["install"] | scopes[":env:"]


def uv_environment(python: Path) -> dict[str, str]:
    """Return os.environ with uv's variables filled in from pip's; a UV_* that the user set does not change."""
    env = dict(os.environ)
    for option, value in read(python).items():
        if option in UV_WORDS:
            name, joint = UV_WORDS[option]
            env.setdefault(name, joint.join(value.split()) if joint else value.strip())
    env.setdefault("UV_INDEX_STRATEGY", "unsafe-best-match")  # as pip does: the best version of all indexes
    return env
