"""Nodes of one machine with a network of known speed: namespaces on a bridge, whose ends a token bucket limits."""

import json
import os
import shutil
import subprocess
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from pathlib import Path

from attrs import frozen

PROGRAMS = ("unshare", "nsenter", "setpriv", "ip", "tc")
OWN = ("setpriv", "--pdeathsig=KILL", "unshare", "--net", "--mount")
_SETUP = Path(__file__).with_name("shaped_network.sh").read_text(encoding="utf-8")


def why_not() -> str:
    """Why there can be no such network here, or nothing."""
    missing = [name for name in PROGRAMS if shutil.which(name) is None]
    if missing:
        return f"no {', '.join(missing)}; tools/system installs them"
    if os.geteuid():
        return "a network of its own needs root"
    made = subprocess.run(
        [*OWN, "bash", "-c", _SETUP, "-", "1mbit"],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    return f"no shaped network here: {made.stderr.strip()}" if made.returncode else ""


@frozen
class Node:
    """One node of the network."""

    words: Sequence[str]
    """What stands before a command that it runs."""
    namespace: str
    """The file of its network, which a process may enter."""


def sent_bytes(node: Node) -> int:
    """The bytes that a node has sent, by the counter of its end of the network."""
    shown = subprocess.run([*node.words, "ip", "-s", "-j", "link", "show", "eth0"], capture_output=True, check=True)
    return int(json.loads(shown.stdout)[0]["stats64"]["tx"]["bytes"])


@contextmanager
def shaped(rates: Sequence[str]) -> Generator[list[Node]]:
    """Nodes 10.0.0.1, 10.0.0.2, ... that send and receive at these rates."""
    command = [*OWN, "bash", "-c", _SETUP, "-", *rates]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as holder:
        assert holder.stdout is not None and holder.stdin is not None
        assert holder.stdout.readline() == "ready\n"
        inside = ["nsenter", f"--target={holder.pid}", "--net", "--mount", "ip", "netns", "exec"]
        try:
            names = [f"n{number}" for number in range(1, len(rates) + 1)]
            yield [Node([*inside, name], f"/proc/{holder.pid}/root/run/netns/{name}") for name in names]
        finally:
            holder.stdin.close()
