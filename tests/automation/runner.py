"""The steps of an action or of a job, executed as GitHub documents its runner: in order, with its environment and files.

https://docs.github.com/en/actions/reference/workflows-and-actions/variables has the variables, and `shell: bash` is
`bash --noprofile --norc -eo pipefail FILE`. A step that `uses` another action is not executed.
"""

import json
import os
import re
import subprocess
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from tests.helpers.paths import ROOT

BASH = ("bash", "--noprofile", "--norc", "-eo", "pipefail")
CONDITIONS = {"": lambda ok: ok, "!cancelled()": lambda ok: True}
"""The conditions of a step that are known here, by whether all steps before it succeeded."""
_EXPRESSION = re.compile(r"\$\{\{\s*([\w.-]+)\s*\}\}")


def read(path: str) -> dict[str, Any]:
    """Read a file of the checkout, in which YAML takes `on` for a Boolean."""
    return yaml.safe_load((ROOT / path).read_text(encoding="utf-8"))


@dataclass
class Runner:
    """A machine for one job: its folders, and what its expressions may read."""

    folder: Path
    workspace: Path
    environment: dict[str, str]
    contexts: dict[str, Any]
    printed: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        for name in ("temp", "home"):
            (self.folder / name).mkdir(parents=True)
        event = self.folder / "event.json"
        event.write_text(json.dumps(self.contexts.get("github", {}).get("event", {})), encoding="utf-8")
        files = {f"GITHUB_{name}": self.folder / name.lower() for name in ("OUTPUT", "ENV", "PATH", "STEP_SUMMARY")}
        for file in files.values():
            file.touch()
        self.environment = {
            "CI": "true", "GITHUB_ACTIONS": "true", "GITHUB_EVENT_PATH": str(event), "HOME": str(self.folder / "home"),
            "GITHUB_WORKSPACE": str(self.workspace), "RUNNER_TEMP": str(self.folder / "temp"),
            "PATH": os.environ["PATH"], **_of_the_machine(), **{k: str(v) for k, v in files.items()}, **self.environment,
        }  # fmt: skip
        self.contexts["runner"] = {"temp": str(self.folder / "temp")}

    def filled(self, text: str) -> str:
        """Replace each expression by its value, which is a name in a context."""
        return _EXPRESSION.sub(lambda e: self._value(e[1]), text)

    def _value(self, name: str) -> str:
        value: Any = self.contexts
        for part in name.split("."):
            value = value.get(part) if isinstance(value, dict) else None
        return "" if value is None else str(value)

    def run(self, steps: list[dict[str, Any]]) -> bool:
        """Execute the scripts of some steps, and tell whether all succeeded."""
        ok = True
        for step in steps:
            condition = str(step.get("if", "")).removeprefix("${{").removesuffix("}}").strip()
            if "run" in step and CONDITIONS[condition](ok):
                ok = self._step(step) and ok
        return ok

    def _step(self, step: dict[str, Any]) -> bool:
        script = self.folder / "step.sh"
        script.write_text(self.filled(step["run"]), encoding="utf-8")
        own = {name: self.filled(text) for name, text in step.get("env", {}).items()}
        where = self.filled(step.get("working-directory", str(self.workspace)))
        done = subprocess.run(
            [*BASH, script], cwd=where, env=self.environment | own, stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False,
        )  # fmt: skip
        self.printed.append(done.stdout)
        self._read_files()
        return done.returncode == 0

    def _read_files(self) -> None:
        """Take over what a step wrote for the next ones."""
        for line in Path(self.environment["GITHUB_ENV"]).read_text(encoding="utf-8").splitlines():
            name, _, value = line.partition("=")
            self.environment[name] = value
        for line in Path(self.environment["GITHUB_PATH"]).read_text(encoding="utf-8").splitlines():
            self.environment["PATH"] = f"{line}:{self.environment['PATH']}"
        for name in ("GITHUB_ENV", "GITHUB_PATH"):
            Path(self.environment[name]).write_text("", encoding="utf-8")


def _of_the_machine() -> dict[str, str]:
    """Where this machine has its packages from."""
    return {k: v for k, v in os.environ.items() if k.startswith(("PIP_", "SSL_")) or k.lower().endswith("_proxy")}
