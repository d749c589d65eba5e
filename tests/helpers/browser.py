"""A page in headless Chromium, driven through its own protocol (DevTools)."""

import base64
import json
import os
import re
import subprocess
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path
from statistics import mean
from typing import Any
from urllib.request import Request, urlopen

import websocket
from PIL import Image, ImageChops, ImageStat

from tests.editors.needs import program
from tests.helpers.paths import ROOT

PATIENCE_S = 60
UNLIKE = 3.0
"""Of 255: a page whose parts moved is farther from its picture in the documents."""
KEYS = {"Tab": 9, "Enter": 13, "Escape": 27, "ArrowDown": 40, "ArrowRight": 39}


class Page:
    """One tab; what it logs or throws is in `errors`."""

    def __init__(self, url: str) -> None:
        self._socket = websocket.create_connection(url, suppress_origin=True, timeout=PATIENCE_S)
        self._id = 0
        self.errors: list[str] = []
        self.asked: list[str] = []
        """The addresses that the page has asked for."""
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")

    def call(self, method: str, **params: Any) -> dict[str, Any]:
        self._id += 1
        self._socket.send(json.dumps({"id": self._id, "method": method, "params": params}))
        while True:
            message = json.loads(self._socket.recv())
            if message.get("id") == self._id:
                assert "error" not in message, message
                return message["result"]
            self._heard(message.get("method"), message.get("params", {}))

    def _heard(self, method: str | None, params: dict[str, Any]) -> None:
        if method == "Runtime.exceptionThrown":
            self.errors.append(params["exceptionDetails"].get("exception", {}).get("description", "exception"))
        elif method == "Log.entryAdded" and params["entry"]["level"] == "error":
            self.errors.append(params["entry"]["text"])
        elif method == "Network.requestWillBeSent":
            self.asked.append(params["request"]["url"])

    def open(self, url: str, width: int = 1200, height: int = 800) -> None:
        size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 600}
        self.call("Emulation.setDeviceMetricsOverride", **size)
        self.call("Page.navigate", url="about:blank")
        self.call("Page.navigate", url=url)

    def js(self, expression: str) -> Any:
        """The value of an expression; a promise is awaited."""
        done = self.call("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in done, done
        return done["result"].get("value")

    def until(self, expression: str, holds: Callable[[Any], bool] = bool) -> Any:
        """Wait until the value of an expression holds, and return it."""
        end = time.monotonic() + PATIENCE_S
        while not holds(value := self.js(expression)):
            assert time.monotonic() < end, (expression, value, self.errors)
            time.sleep(0.1)
        return value

    def type(self, text: str) -> None:
        for char in text:
            self.call("Input.dispatchKeyEvent", type="char", text=char)

    def press(self, key: str) -> None:
        for kind in ("rawKeyDown", "keyUp"):
            self.call("Input.dispatchKeyEvent", type=kind, key=key, code=key, windowsVirtualKeyCode=KEYS[key])

    def picture(self, name: str, folder: Path) -> None:
        """Take a picture of the window into a folder, or into that of MOEDSL_SHOTS, which the documents show."""
        shot = self.call("Page.captureScreenshot", format="webp", quality=70)
        kept = os.environ.get("MOEDSL_SHOTS")
        file = (ROOT / kept if kept else folder) / f"{name}.webp"
        file.write_bytes(base64.b64decode(shot["data"]))
        assert 5_000 < file.stat().st_size < 120_000, "a picture of nothing, or too large for a document"
        known = ROOT / "docs" / "images" / file.name
        assert known.exists() and unlike(file, known) < UNLIKE, "MOEDSL_SHOTS=docs/images keeps it"


def unlike(a: Path, b: Path) -> float:
    """How far two pictures are apart, of 255: coarsely, so that other figures or letters in them hardly count."""
    small = [Image.open(file).convert("RGB").resize((48, 32), Image.Resampling.BOX) for file in (a, b)]
    return mean(ImageStat.Stat(ImageChops.difference(*small)).mean)


@contextmanager
def browser(data: Path) -> Generator[Page]:
    """Start Chromium with its data in a folder, and end it."""
    options = (
        "--headless=new",
        "--no-sandbox",
        "--disable-gpu",
        "--remote-debugging-port=0",
        f"--user-data-dir={data}",
    )
    command = [program("chromium", "chromium"), *options, "--no-first-run", "--disable-extensions", "about:blank"]
    log = data / "stderr.log"  # a pipe that nobody reads would be full one day, and Chromium wait for it
    with log.open("w") as said:
        process = subprocess.Popen(command, stderr=said, stdout=subprocess.DEVNULL)
    try:
        while (found := re.search(r"ws://(\S+?)/", log.read_text(errors="replace"))) is None:
            assert process.poll() is None, log.read_text(errors="replace")
            time.sleep(0.05)
        where = found[1]
        with urlopen(Request(f"http://{where}/json/new?about:blank", method="PUT")) as answer:
            yield Page(json.load(answer)["webSocketDebuggerUrl"])
    finally:
        process.terminate()
        process.wait()
