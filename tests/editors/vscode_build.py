"""The VS Code extension, built outside of the checkout."""

import shutil
import subprocess
from pathlib import Path
from typing import Self

from attrs import frozen

from tests.editors import npm
from tests.editors.needs import program
from tests.helpers.paths import ROOT

SOURCE = ROOT / "editors" / "vscode"
LEFT_OUT = ("node_modules", "dist", "dist-test", "package-lock.json")


@frozen
class Build:
    """A copy of editors/vscode with its development packages beside it."""

    folder: Path

    @classmethod
    def into(cls, folder: Path) -> Self:
        shutil.copytree(SOURCE, folder, ignore=shutil.ignore_patterns(*LEFT_OUT))
        (folder / "node_modules").symlink_to(npm.installed(SOURCE / "package.json") / "node_modules")
        return cls(folder)

    def script(self, name: str) -> subprocess.CompletedProcess[str]:
        """`npm run NAME`."""
        command = [program("npm", "npm"), "run", "--silent", name]
        return subprocess.run(command, cwd=self.folder, capture_output=True, text=True, check=False)

    def package(self) -> Path:
        """The .vsix."""
        done = self.script("package")
        assert done.returncode == 0, done.stdout + done.stderr
        return self.folder / "dist" / "moedsl.vsix"
