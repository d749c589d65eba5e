"""Make the two virtual environments; a second run finds its stamp and does nothing. Uses only the standard library."""

from __future__ import annotations

import argparse
import fcntl
import hashlib
import shutil
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import pip_config
from steps import StepFailed, run, say, size

ROOT = Path(__file__).resolve().parent.parent
WORK = ROOT / ".setup"
WHOLE = ("bridge-0.6.2", "launch", "editors", "dev", "site")
"""The content of .venv, by the files in constraints/."""
OLDER = ("0.4", "0.5")
"""The releases of Megatron Bridge that tests ask besides that one."""


@dataclass(frozen=True)
class Environment:
    """One virtual environment and its content."""

    name: str
    python: Path
    constraints: tuple[str, ...]

    @property
    def folder(self) -> Path:
        return ROOT / self.name

    @property
    def interpreter(self) -> Path:
        return self.folder / "bin" / "python"

    @property
    def stamp(self) -> Path:
        return WORK / f"{self.name}.done"

    @property
    def begun(self) -> Path:
        return WORK / f"{self.name}.begun"

    def key(self) -> str:
        """Hash everything that the environment depends on, and the folder, because scripts name it."""
        digest = hashlib.sha256(f"{ROOT}\n{self.python}\n".encode())
        for name in ("pyproject.toml", "tools/setup.py", *self.constraints):
            digest.update((ROOT / name).read_bytes())
        return digest.hexdigest()


def is_done(env: Environment) -> bool:
    """Tell whether the environment is what the sources ask for, and starts."""
    return env.stamp.exists() and env.stamp.read_text() == env.key() and _starts(env.interpreter)


def make(env: Environment) -> None:
    """Installs into `env`, from nothing if the last attempt was interrupted."""
    say(f"{env.name} with {env.python}")
    start = time.monotonic()
    env.stamp.unlink(missing_ok=True)
    if env.begun.exists() or not _starts(env.interpreter) or not _belongs(env):
        shutil.rmtree(env.folder, ignore_errors=True)
    env.begun.touch()
    if not env.folder.exists():
        run("virtual environment", [env.python, "-m", "venv", env.folder])
    _install(env)
    env.begun.unlink()
    env.stamp.write_text(env.key())
    say(f"{env.name} is ready: {size(env.folder)}, {time.monotonic() - start:.0f} s")


def _install(env: Environment) -> None:
    _packages(env)
    run("bytecode of moedsl", [env.interpreter, "-m", "compileall", "-q", ROOT / "moedsl"])


def _packages(env: Environment) -> None:
    pins = [part for name in env.constraints for part in ("-r", ROOT / name)]
    local = ["--no-build-isolation", "--no-deps", "-e", ROOT]
    if (uv_program := _uv(env)) is not None:
        uv = [uv_program, "pip", "install", "--python", env.interpreter]
        settings = pip_config.uv_environment(env.interpreter)
        try:
            run("packages (uv; bytecode compiled)", [*uv, "--no-deps", "--compile-bytecode", *pins], settings)
            run("moedsl", [*uv, *local], settings)
            return
        except StepFailed as failed:
            say(f"{failed}; plain pip instead")
    pip = [env.interpreter, "-m", "pip", "install", "--disable-pip-version-check", "--progress-bar", "off", "-q"]
    run("packages (pip; bytecode compiled)", [*pip, "--no-deps", *pins])
    run("moedsl", [*pip, *local])


def _uv(env: Environment) -> Path | None:
    """Install uv with pip into .setup/uv, once for both environments; None if that fails."""
    folder = WORK / "uv"
    if not _starts(folder / "bin" / "python"):
        shutil.rmtree(folder, ignore_errors=True)
        run("virtual environment for uv", [env.python, "-m", "venv", folder])
    try:
        if not (folder / "bin" / "uv").exists():
            run("uv", [folder / "bin" / "python", "-m", "pip", "install", "--disable-pip-version-check", "-q", "uv"])
        return folder / "bin" / "uv"
    except StepFailed as failed:
        say(f"{failed}; plain pip instead, which takes some minutes")
        return None


def _starts(python: Path) -> bool:
    return python.exists() and subprocess.run([python, "-c", ""], capture_output=True, check=False).returncode == 0


def _belongs(env: Environment) -> bool:
    """Tell whether the folder was made by that Python and in this place: console scripts name both."""
    script = (env.folder / "bin" / "pip").read_text() if (env.folder / "bin" / "pip").exists() else ""
    home = (env.folder / "pyvenv.cfg").read_text() if (env.folder / "pyvenv.cfg").exists() else ""
    same_python = env.python.resolve().parent in [Path(folder).resolve() for folder in _homes(home)]
    return same_python and str(env.folder) in script


def _homes(config: str) -> list[str]:
    return [line.partition("=")[2].strip() for line in config.splitlines() if line.startswith("home")]


def environments(python311: str) -> list[Environment]:
    """List the full environment, and the core's under Python 3.11 if there is such an interpreter."""
    main = Environment(".venv", Path(sys.executable), tuple(f"constraints/{n}.txt" for n in WHOLE))
    if not python311:
        say("no python3.11 that starts: the core's tests run only under 3.12")
        return [main]
    return [main, Environment(".venv311", Path(python311), ("constraints/core-3.11.txt",))]


def older_releases(env: Environment) -> None:
    """Fetch the older releases of Bridge that tests ask, once; tests say that they skip where that fails."""
    stamp, key = WORK / "targets.done", hashlib.sha256((ROOT / "moedsl/facts/releases.py").read_bytes()).hexdigest()
    if stamp.exists() and stamp.read_text() == key:
        return
    try:
        run("older releases of Megatron Bridge", [env.interpreter, "-m", "moedsl", "targets", "add", *OLDER])
        stamp.write_text(key)
    except StepFailed as failed:
        say(f"{failed}; the tests that ask them skip")


def resiliency(env: Environment) -> None:
    """Fetch NVIDIA's launcher that restarts ranks, once, into a folder of its own; tests say that they skip without."""
    folder, pins = WORK / "resiliency", ROOT / "constraints/resiliency.txt"
    stamp, key = WORK / "resiliency.done", pins.read_text()
    if folder.exists() and stamp.exists() and stamp.read_text() == key:
        return
    shutil.rmtree(folder, ignore_errors=True)
    pip = [env.interpreter, "-m", "pip", "install", "--disable-pip-version-check", "-q", "--no-deps"]
    try:
        run("NVIDIA's launcher that restarts ranks", [*pip, "--target", folder, "-r", pins])
        stamp.write_text(key)
    except StepFailed as failed:
        say(f"{failed}; the tests that start it skip")


def main() -> int:
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--python311", default="", help="a Python 3.11 that starts, or nothing")
    wanted = environments(arguments.parse_args().python311)
    WORK.mkdir(exist_ok=True)
    with (WORK / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        try:
            for env in wanted:
                if not is_done(env):
                    make(env)
            older_releases(wanted[0])
            resiliency(wanted[0])
        except StepFailed as failed:
            say(f"FAILED: {failed}. The output above has the reason; the next run makes that environment again.")
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
