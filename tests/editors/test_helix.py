"""A real Helix with editors/helix: it knows the language, and says what it colours words by."""

import fcntl
import os
import pty
import re
import shutil
import signal
import struct
import subprocess
import termios
from pathlib import Path

import pytest

from tests.editors.needs import moedsl_program, program, unpacked
from tests.helpers.paths import ROOT
from tests.helpers.tables import table_of
from tests.oracles.two_parsers import compiled

RUN = "model qwen3_30b_a3b  # é\nh100 x 16\npin tp=min(4, cp)\nrules r { require a: tp > 1 and seq in [4k] }\n"
WORDS = table_of("editors", "helix words")
POPUP = rb"\x1b\[7m +\x1b\[[0-9;]+H ([a-z.]+) "
"""How a popup is drawn: reversed, an empty line and then its text."""
ESCAPES = re.compile(r"\x1b\[[0-9;]*m")
COLOURS = ("red", "green", "yellow", "blue", "magenta", "cyan")


class Helix:
    """Helix with a configuration and a runtime of its own."""

    def __init__(self, folder: Path) -> None:
        program("gcc", "gcc")
        queries = folder / "runtime" / "queries" / "moe"
        shutil.copytree(ROOT / "editors" / "helix" / "queries" / "moe", queries)
        (folder / "runtime" / "grammars").mkdir()
        shutil.copy(compiled(), folder / "runtime" / "grammars" / "moe.so")
        (folder / "config" / "helix").mkdir(parents=True)
        shutil.copy(ROOT / "editors" / "helix" / "languages.toml", folder / "config" / "helix")
        scopes = sorted(set(re.findall(r"@([a-z.]+)", (queries / "highlights.scm").read_text(encoding="utf-8"))))
        (folder / "config" / "helix" / "config.toml").write_text('theme = "every_scope"\n')
        (folder / "config" / "helix" / "themes").mkdir()
        theme = "".join(f'"{scope}" = "{COLOURS[i % len(COLOURS)]}"\n' for i, scope in enumerate(scopes))
        popup = '"ui.popup" = { modifiers = ["reversed"] }\n"ui.selection" = { modifiers = ["bold"] }\n'
        (folder / "config" / "helix" / "themes" / "every_scope.toml").write_text(theme + popup)
        self.command = unpacked("hx").command("usr/lib/hx/hx")
        places = {"XDG_CONFIG_HOME": "config", "XDG_CACHE_HOME": "cache", "HELIX_RUNTIME": "runtime"}
        own = {key: str(folder / name) for key, name in places.items()}
        path = f"{moedsl_program(folder).parent}:{os.environ['PATH']}"
        self.env = {**os.environ, **own, "PATH": path, "TERM": "xterm-256color"}

    def health(self) -> str:
        command = [*self.command, "--health", "moe"]
        done = subprocess.run(command, env=self.env, capture_output=True, text=True, check=True)
        return ESCAPES.sub("", done.stdout)

    def name_at(self, file: Path, row: int, column: int) -> str:
        """What Helix calls the highlight of a place, both from 1 on."""
        pid, screen = pty.fork()
        if pid == 0:
            fcntl.ioctl(0, termios.TIOCSWINSZ, struct.pack("HHHH", 30, 120, 0, 0))
            os.execve(self.command[0], [*self.command, f"{file}:{row}:{column}"], self.env)
        try:
            _until(screen, rb"(\x1b\[c)")
            os.write(screen, b"\x1b[?62c")  # which terminal this is: Helix waits two seconds for an answer
            _until(screen, rb"(NOR)")
            os.write(screen, b":tree-sitter-highlight-name\r")
            return _until(screen, POPUP)
        finally:
            os.kill(pid, signal.SIGTERM)
            os.waitpid(pid, 0)
            os.close(screen)


def _until(screen: int, pattern: bytes) -> str:
    """The group of the first match of a pattern in what is drawn from now on."""
    seen = b""
    while True:
        seen += os.read(screen, 65536)  # an OSError says that the program has ended
        match = re.search(pattern, seen)
        if match:
            return match[1].decode()


@pytest.fixture(scope="module")
def helix(tmp_path_factory: pytest.TempPathFactory) -> Helix:
    return Helix(tmp_path_factory.mktemp("helix"))


def test_helix_knows_the_language(helix: Helix) -> None:
    health = helix.health()
    assert "✓ moedsl" in health
    lines = dict(line.split(":", 1) for line in health.splitlines() if ":" in line)
    for what in ("Tree-sitter parser", "Highlight queries", "Textobject queries", "Indent queries"):
        assert "✓" in lines[what]


@pytest.mark.parametrize("word", WORDS)
def test_words_have_their_highlight(word: str, helix: Helix, tmp_path: Path) -> None:
    file = tmp_path / "t.moe"
    file.write_text(RUN, encoding="utf-8")
    at = RUN.index(word)
    row, column = RUN.count("\n", 0, at) + 1, at - RUN.rfind("\n", 0, at)
    assert helix.name_at(file, row, column) == WORDS[word]
