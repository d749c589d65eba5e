"""An SSH server on loopback with throwaway keys: the login node of the tests' Slurm, as seen from a laptop."""

import getpass
import os
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from attrs import define

from tests.helpers import ports

PROGRAMS = ("sshd", "ssh", "ssh-keygen", "rsync")
_PATH = f"{os.environ['PATH']}:/usr/sbin:/sbin"


@define
class Server:
    """Where it listens, and the key that it lets in."""

    port: int
    user: str
    identity: Path
    programs: Path
    """A folder for the front of PATH: an `ssh` that knows the server's key, as a person's known_hosts would."""
    process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start it, also after a stop; RuntimeError with its log if it does not start."""
        root = self.programs.parent
        program = shutil.which("sshd", path=_PATH)
        assert program is not None
        command = ["setpriv", "--pdeathsig=TERM", program, "-D", "-e", "-f", str(root / "sshd_config")]
        with (root / "log").open("a") as log:
            self.process = subprocess.Popen(command, stderr=log)
        _answers(self.process, self.port, root / "log")

    def stop(self) -> None:
        """End it and every session."""
        assert self.process is not None
        if self.process.poll() is not None:
            return
        subprocess.run(["pkill", "-TERM", "-P", str(self.process.pid)], check=False)
        self.process.terminate()
        self.process.wait()


def why_not() -> str:
    """Why none can be started here, or nothing."""
    missing = [name for name in PROGRAMS if shutil.which(name, path=_PATH) is None]
    return f"no {', '.join(missing)}; tools/system installs them" if missing else ""


@contextmanager
def started(root: Path, environment: Mapping[str, str]) -> Iterator[Server]:
    """A server whose sessions have `environment`; RuntimeError with its log where it does not start."""
    root.mkdir()
    Path("/run/sshd").mkdir(exist_ok=True)  # sshd's own, for separated privileges
    for name in ("host", "person"):
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", root / name], check=True)
    port = ports.kept()
    (root / "sshd_config").write_text(_configuration(root, port, environment))
    server = Server(port, getpass.getuser(), root / "person", root / "bin")
    _ssh(server, root)
    server.start()
    try:
        yield server
    finally:
        server.stop()


def _configuration(root: Path, port: int, environment: Mapping[str, str]) -> str:
    (root / "authorized_keys").write_text((root / "person.pub").read_text())
    lines = {
        "Port": port, "ListenAddress": "127.0.0.1", "HostKey": root / "host",
        "AuthorizedKeysFile": root / "authorized_keys", "PidFile": "none", "StrictModes": "no",
        "PermitRootLogin": "prohibit-password", "PasswordAuthentication": "no", "UsePAM": "no",
        "SetEnv": " ".join(f'"{name}={value}"' for name, value in environment.items()),
    }  # fmt: skip
    return "".join(f"{name} {value}\n" for name, value in lines.items())


def _ssh(server: Server, root: Path) -> None:
    kind, key, *_ = (root / "host.pub").read_text().split()
    (root / "known_hosts").write_text(f"[127.0.0.1]:{server.port} {kind} {key}\n")
    server.programs.mkdir()
    path = server.programs / "ssh"
    path.write_text(f'#!/bin/sh\nexec {shutil.which("ssh")} -o UserKnownHostsFile={root}/known_hosts "$@"\n')
    path.chmod(0o755)


def _answers(process: subprocess.Popen[bytes], port: int, log: Path) -> None:
    while True:
        if process.poll() is not None:
            raise RuntimeError(f"sshd did not start\n{log.read_text()}")
        with socket.socket() as attempt:
            if attempt.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.05)
