"""The VS Code extension: its types, its package, and, with MOEDSL_VSCODE=1, a real VS Code that has it installed.

The tests of the extension host are in editors/vscode/test/suite.ts; here each is a test of its own. The window is
used through headless Chromium by editors/vscode/test/drive_use.ts; MOEDSL_SHOTS=docs/images keeps its pictures.
"""

import json
import os
import re
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from attrs import frozen

from moedsl.lang.parser import parse
from moedsl.support.source import Source
from tests.editors import vscode_server
from tests.editors.needs import moedsl_program, program
from tests.editors.vscode_build import SOURCE, Build
from tests.helpers.paths import ROOT

SUITE = SOURCE / "test" / "suite.ts"
HOST_TESTS = re.findall(r'^test\("([^"]+)"', SUITE.read_text(), re.MULTILINE)
FULL = pytest.mark.skipif(os.environ.get("MOEDSL_VSCODE") != "1", reason="a full VS Code runs where MOEDSL_VSCODE=1")


@pytest.fixture(scope="module")
def build(tmp_path_factory: pytest.TempPathFactory) -> Build:
    return Build.into(tmp_path_factory.mktemp("vscode") / "extension")


@pytest.fixture(scope="module")
def vsix(build: Build) -> Path:
    return build.package()


@pytest.fixture
def manifest() -> dict[str, Any]:
    return json.loads((SOURCE / "package.json").read_text())


def test_types(build: Build) -> None:
    done = build.script("check")
    assert done.returncode == 0, done.stdout + done.stderr


def test_package_holds_what_the_manifest_names(vsix: Path, manifest: dict[str, Any]) -> None:
    contributes = manifest["contributes"]
    named = [manifest["main"], manifest["icon"], contributes["languages"][0]["configuration"]]
    named += [entry["path"] for kind in ("grammars", "snippets") for entry in contributes[kind]]
    named += [step["media"]["markdown"] for tour in contributes["walkthroughs"] for step in tour["steps"]]
    with zipfile.ZipFile(vsix) as archive:
        held = set(archive.namelist())
    assert {f"extension/{name.removeprefix('./')}" for name in named} <= held
    assert not [name for name in held if name.endswith((".ts", ".map")) or "node_modules" in name]
    assert vsix.stat().st_size < 400_000


def test_every_command_is_registered(manifest: dict[str, Any]) -> None:
    source = (SOURCE / "src" / "extension.ts").read_text()
    offered = {entry["command"] for entry in manifest["contributes"]["commands"]}
    assert offered == set(re.findall(r'command\("(moedsl\.\w+)"', source))


def test_versions_are_exact(manifest: dict[str, Any]) -> None:
    assert all(re.fullmatch(r"\d+\.\d+\.\d+", version) for version in manifest["devDependencies"].values())


def test_grammar_and_language_agree(manifest: dict[str, Any]) -> None:
    grammar = json.loads((SOURCE / manifest["contributes"]["grammars"][0]["path"]).read_text())
    assert grammar["scopeName"] == manifest["contributes"]["grammars"][0]["scopeName"]


def test_snippets_parse() -> None:
    """Each with the values that stand in it, as one who only presses Tab leaves it."""
    for name, snippet in json.loads((SOURCE / "snippets" / "moe.json").read_text()).items():
        text = _as_it_stands("\n".join(snippet["body"]))
        module, found = parse(Source("snippet.moe", text))
        assert module is not None and not found, (name, text, found)


def _as_it_stands(body: str) -> str:
    """A snippet's text with each place's own value, the first of several."""
    values = dict(re.findall(r"\$\{(\d+)[:|]([^},|]*)", body))
    return re.sub(r"\$\{(\d+)[:|][^}]*\}|\$(\d+)", lambda m: values.get(m[1] or m[2], ""), body)


@frozen
class Window:
    """A served VS Code with the extension, and the scripts that drive it."""

    server: vscode_server.Server
    build: Build
    environment: dict[str, str]

    def drive(self, what: str) -> None:
        script = self.build.folder / "dist-test" / "drive.js"
        command = [program("node", "nodejs"), str(script), what, self.server.url, str(self.server.folder)]
        done = subprocess.run(command, env=self.environment, capture_output=True, text=True, check=False)
        assert done.returncode == 0, f"{done.stdout}{done.stderr}\nsettings: {self.server.settings.read_text()}"


@pytest.fixture(scope="module")
def window(build: Build, vsix: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Window]:
    data = tmp_path_factory.mktemp("window")
    done = build.script("bundle:test")
    assert done.returncode == 0, done.stderr
    own = {
        "CHROMIUM": program("chromium", "chromium"),
        "MOEDSL_RESULTS": str(data / "results.json"),
        "MOEDSL_WITHOUT_PYGLS": str(_without_pygls(data)),
        "MOEDSL_TEST_EXTENSION": str(build.folder),
        "MOEDSL_TEST_SUITE": str(build.folder / "dist-test" / "suite.js"),
        "MOEDSL_SHOTS": str(ROOT / os.environ["MOEDSL_SHOTS"]) if "MOEDSL_SHOTS" in os.environ else str(data),
    }
    with vscode_server.serving(vsix, data, moedsl_program(data), own) as server:
        yield Window(server, build, {**os.environ, **own})


def _without_pygls(folder: Path) -> Path:
    """The program as it stands in an environment that has no pygls."""
    script = folder / "moedsl-core"
    hide = "import sys; sys.path.insert(0, sys.argv[1]); sys.modules['pygls'] = None"
    call = "from moedsl.cli.main import main; sys.argv[1:] = ['lsp']; sys.exit(main())"
    script.write_text(f'#!/bin/sh\nexec "{sys.executable}" -c "{hide}; {call}" "{ROOT}"\n')
    script.chmod(0o755)
    return script


@pytest.fixture(scope="module")
def host_results(window: Window) -> dict[str, str | None]:
    """Name -> the error of each test that ran in the extension host, None where it passed."""
    window.drive("suite")
    results = json.loads(Path(window.environment["MOEDSL_RESULTS"]).read_text())
    return {result["name"]: result["error"] for result in results}


@FULL
@pytest.mark.parametrize("name", HOST_TESTS)
def test_extension_host(name: str, host_results: dict[str, str | None]) -> None:
    assert host_results[name] is None, host_results[name]


@FULL
def test_window(window: Window) -> None:
    """What a person sees; the driver says what it missed."""
    window.drive("use")
