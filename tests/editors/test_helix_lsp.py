"""Helix on a terminal of tmux, with editors/helix/languages.toml and the real `moedsl lsp`; keys in, screen out."""

import os
import shlex
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from attrs import frozen

from tests.editors.needs import moedsl_program, program, unpacked
from tests.helpers.paths import ROOT

GOOD = "model qwen3_30b_a3b\nh100 x 16\nseq 4k\nfit first\n"
CONFIG = """
[editor.lsp]
display-inlay-hints = true
[editor.inline-diagnostics]
cursor-line = "hint"
"""


@frozen
class Helix:
    """One Helix, in a terminal of 140 columns."""

    tmux: tuple[str, ...]
    folder: Path

    def tell(self, *words: str) -> str:
        done = subprocess.run([*self.tmux, *words], capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def keys(self, *keys: str) -> None:
        """Keys by tmux's names; each is taken in before the next."""
        for key in keys:
            self.tell("send-keys", key)
            time.sleep(0.05)

    def command(self, text: str) -> None:
        """A command at the prompt. An Escape and what follows may be read as one key, so the prompt is looked for."""
        while not self.prompts():
            self.keys("Escape")
            time.sleep(0.2)
            self.keys(":")
        self.tell("send-keys", "-l", text)
        self.until(lambda screen: f":{text}" in screen)
        self.keys("Enter")

    def prompts(self) -> bool:
        """Whether the last line is the prompt (with the last command in grey), now or within half a second."""
        for _ in range(5):
            if self.tell("capture-pane", "-p").rstrip().rpartition("\n")[2].startswith(":"):
                return True
            time.sleep(0.1)
        return False

    def open(self, name: str, text: str) -> Path:
        file = self.folder / name
        file.write_text(text)
        self.command(f"open {file}")
        self.until(lambda screen: text.splitlines()[-1] in screen and name in screen)
        return file

    def written(self, file: Path, want: str) -> None:
        """Waits until the screen shows the text, and saves it."""
        self.until(lambda screen: all(line in screen for line in want.splitlines()))
        self.command("write")
        self.until(lambda _: _text(file) == want)

    def until(self, seen: Callable[[str], bool]) -> str:
        """The screen as soon as it shows what is awaited; the last one fails the test."""
        screen = ""
        for _ in range(600):
            screen = self.tell("capture-pane", "-p")
            if seen(screen):
                return screen
            time.sleep(0.1)
        raise AssertionError(screen)

    def until_served(self) -> str:
        """The screen with the inlay hints of a good file, which Helix shows once the server is up and a key is hit."""

        def shown(screen: str) -> bool:
            self.keys("j", "k")
            time.sleep(0.6)  # Helix asks for hints when a key came and 250 ms without one have passed
            return "ep=" in screen

        return self.until(shown)


def _text(file: Path) -> str:
    """What the file holds; nothing in the moment in which Helix puts the new one in its place."""
    try:
        return file.read_text()
    except FileNotFoundError:
        return ""


@pytest.fixture(scope="module")
def helix(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Helix]:
    folder = tmp_path_factory.mktemp("helix")
    settings = folder / "config" / "helix"
    settings.mkdir(parents=True)
    (settings / "config.toml").write_text(CONFIG)
    (settings / "languages.toml").write_text((ROOT / "editors/helix/languages.toml").read_text())
    hx = unpacked("hx")
    own = {
        "PATH": f"{moedsl_program(folder).parent}:{os.environ['PATH']}",
        "HELIX_RUNTIME": str(hx.root / "usr/lib/hx/runtime"),
        "XDG_CONFIG_HOME": str(folder / "config"),
        "XDG_CACHE_HOME": str(folder),
        "TERM": "xterm-256color",
        "LC_ALL": "C.UTF-8",
    }
    conf = folder / "tmux.conf"
    conf.write_text("set -g remain-on-exit on\n")  # what it says as it ends stays to be read
    tmux = (program("tmux", "tmux"), "-u", "-S", str(folder / "socket"), "-f", str(conf))
    start = [*tmux, "new-session", "-d", "-x", "140", "-y", "30", shlex.join(hx.command("usr/lib/hx/hx"))]
    subprocess.run(start, env={**os.environ, **own}, check=True, cwd=folder)
    try:
        yield Helix(tmux, folder)
    finally:
        subprocess.run([*tmux, "kill-server"], check=False)


def test_diagnostics(helix: Helix) -> None:
    helix.open("misspelt.moe", "model qwen3_30b_a3\nh100 x 16\nseq 4k\n")
    screen = helix.until(lambda screen: "no model is called" in screen)
    assert "did you mean `qwen3_30b_a3b`" in screen


def test_inlay_hints(helix: Helix) -> None:
    helix.open("hints.moe", GOOD)
    assert "tok/s/GPU" in helix.until_served()


def test_hover(helix: Helix) -> None:
    helix.open("hover.moe", GOOD)
    helix.until_served()
    helix.keys("g", "g", "w", "w", "Space", "k")
    helix.until(lambda screen: "128 experts" in screen)


def test_completion(helix: Helix) -> None:
    helix.open("completion.moe", "model qwen3\nh100 x 16\n")
    helix.keys("g", "g", "A", "_")
    screen = helix.until(lambda screen: "qwen3_235b_a22b" in screen)
    assert "qwen3_30b_a3b" in screen


def test_definition(helix: Helix) -> None:
    helix.open("definition.moe", GOOD)
    helix.until_served()
    helix.keys("g", "g", "w", "w", "g", "d")
    helix.until(lambda screen: "model qwen3_30b_a3b {" in screen)


def test_quick_fix(helix: Helix) -> None:
    file = helix.open("fix.moe", "model qwen3_30b_a3\nh100 x 16\nseq 4k\n")
    helix.until(lambda screen: "no model is called" in screen)
    helix.keys("g", "g", "w", "w", "Space", "a")
    helix.until(lambda screen: "Fix all mistakes" in screen)
    helix.keys("Enter")
    helix.written(file, "model qwen3_30b_a3b\nh100 x 16\nseq 4k\n")


def test_rename(helix: Helix) -> None:
    text = "rules house {\n  let room = 2\n}\nqwen3_30b_a3b; h100 x 16\nrequire spare: dp >= room\n"
    file = helix.open("rename.moe", text)
    helix.keys("g", "g", "j", "w", "w", "w", "Space", "r")
    helix.until(lambda screen: "rename-to:" in screen)
    helix.keys("C-u")
    helix.tell("send-keys", "-l", "slack")
    helix.keys("Enter")
    helix.written(file, text.replace("room", "slack"))


def test_format(helix: Helix) -> None:
    file = helix.open("format.moe", "model   qwen3_30b_a3b\nh100   x  16\npin tp = 1\n")
    helix.command("format")
    helix.written(file, "model qwen3_30b_a3b\nh100 x 16\npin tp=1\n")
