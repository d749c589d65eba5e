"""VS Code as a server on this machine, with the packaged extension in it."""

import json
import os
import re
import subprocess
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from pathlib import Path

from attrs import frozen

from tests.editors import npm
from tests.editors.needs import program

OPTIONS = (
    "--without-connection-token",
    "--accept-server-license-terms",
    "--disable-workspace-trust",
    "--enable-smoke-test-driver",
    "--telemetry-level=off",
)


SETTINGS = {
    "workbench.startupEditor": "none", "workbench.colorTheme": "Default Light Modern", "window.commandCenter": False,
    "chat.commandCenter.enabled": False, "workbench.layoutControl.enabled": False,
    "workbench.activityBar.location": "hidden", "editor.minimap.enabled": False, "telemetry.telemetryLevel": "off",
    "extensions.autoUpdate": False,
}  # fmt: skip


@frozen
class Server:
    """A server that listens on the loopback address."""

    url: str
    folder: Path
    """The opened folder."""
    settings: Path
    """The user's, which tests in the window change."""


@contextmanager
def serving(vsix: Path, data: Path, program_path: Path, environment: Mapping[str, str]) -> Generator[Server]:
    """Installs the extension, starts the server and ends it. `data` holds all that it writes."""
    folder = data / "runs"
    folder.mkdir()
    settings = data / "user" / "User" / "settings.json"
    _settings(settings, {"moedsl.path": str(program_path)})
    main = [program("node", "nodejs"), str(npm.code_server() / "out" / "server-main.js")]
    places = [f"--server-data-dir={data}/server", f"--extensions-dir={data}/extensions", f"--user-data-dir={data}/user"]
    install = [*main, *places, "--accept-server-license-terms", "--install-extension", str(vsix)]
    done = subprocess.run(install, capture_output=True, text=True, check=False)
    assert "successfully installed" in done.stdout, done.stdout + done.stderr
    command = [*main, *places, *OPTIONS, "--host=127.0.0.1", "--port=0"]
    alone = {"EXTENSIONS_GALLERY": "{}"}  # or it would look for newer extensions outside
    everything = {**os.environ, **alone, **environment}
    with (data / "server.log").open("w") as log:
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, text=True, env=everything)
    try:
        yield Server(f"http://127.0.0.1:{_port(process)}", folder, settings)
    finally:
        process.terminate()
        process.wait()


def _settings(file: Path, own: Mapping[str, str]) -> None:
    file.parent.mkdir(parents=True)
    file.write_text(json.dumps({**SETTINGS, **own}))


def _port(process: subprocess.Popen[str]) -> int:
    assert process.stdout is not None
    for line in process.stdout:
        if found := re.search(r"listening on (\d+)", line):
            return int(found[1])
    raise AssertionError(f"the server ended with {process.wait()} before it listened")
