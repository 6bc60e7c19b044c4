"""A headless Chromium, driven by its DevTools protocol over two pipes (--remote-debugging-pipe): no port, no library.

Messages are JSON that ends in a zero byte, on descriptor 3 to the browser and 4 from it (Chromium,
content/browser/devtools/devtools_pipe_handler.cc). The browser is $HOLMES_SIM_CHROMIUM, or one on the path.
"""

from __future__ import annotations

import base64
import fcntl
import itertools
import json
import os
import select
import shutil
import signal
import tempfile
import time
from pathlib import Path

NAMES = ("chromium", "chromium-headless-shell", "chromium-browser", "google-chrome", "chrome")
PATIENCE = 60.0
"""Seconds until a browser that says nothing is given up."""

PALE_WORDS = """(() => {
  const parse = text => text.match(/[\\d.]+/g).map(Number), bad = [];
  const light = c => c.slice(0, 3).map(v => v / 255).map(v => v <= .04045 ? v / 12.92 : ((v + .055) / 1.055) ** 2.4)
    .reduce((sum, v, i) => sum + v * [.2126, .7152, .0722][i], 0);
  for (const e of document.querySelectorAll('body *')) {
    const words = [...e.childNodes].some(n => n.nodeType === 3 && n.textContent.trim());
    if (!words || ['SCRIPT', 'STYLE', 'TITLE', 'NOSCRIPT', 'text', 'title'].includes(e.tagName)) continue;
    let ground = e;
    while (ground && (parse(getComputedStyle(ground).backgroundColor)[3] ?? 1) === 0) ground = ground.parentElement;
    const pair = [getComputedStyle(e).color, getComputedStyle(ground || document.body).backgroundColor];
    const [low, high] = pair.map(parse).map(light).sort((a, b) => a - b);
    if ((high + .05) / (low + .05) < 4.5) bad.push([e.tagName, e.textContent.slice(0, 40), ...pair]);
  }
  return bad;
})()"""
"""Elements of a page whose words have less contrast with what lies behind them than 4.5 to 1 (WCAG 2.2, 1.4.3)."""


def executable() -> str | None:
    """The browser to use; None where there is none."""
    given = os.environ.get("HOLMES_SIM_CHROMIUM")
    return given or next((found for found in map(shutil.which, NAMES) if found), None)


class Chromium:
    """One browser with one page; what the page complains of is in `complaints`, what it asks for in `requests`."""

    def __init__(self, program: str) -> None:
        self.complaints: list[str] = []
        self.requests: list[str] = []
        self._folder = tempfile.mkdtemp(prefix="holmes-sim-chromium-")
        self._count = itertools.count(1)
        self._heard = b""
        self._messages: list[dict] = []
        self._pid, self._write, self._read = self._start(program)
        target = self.call("Target.createTarget", {"url": "about:blank"}, session=None)["targetId"]
        self._session = self.call("Target.attachToTarget", {"targetId": target, "flatten": True}, session=None)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")

    def _start(self, program: str) -> tuple[int, int, int]:
        ours, theirs = os.pipe(), os.pipe()
        # high numbers, so that neither end stands where the other is to be put
        three, four = (fcntl.fcntl(end, fcntl.F_DUPFD_CLOEXEC, 64) for end in (ours[0], theirs[1]))
        options = [
            "--headless",
            "--remote-debugging-pipe",
            f"--user-data-dir={self._folder}",
            "--no-first-run",
            "--disable-gpu",
        ]
        if os.geteuid() == 0:
            options.append("--no-sandbox")  # it refuses to start as root otherwise
        null = os.open(os.devnull, os.O_RDWR)
        actions = [(os.POSIX_SPAWN_DUP2, null, number) for number in (0, 1, 2)]
        actions += [(os.POSIX_SPAWN_DUP2, three, 3), (os.POSIX_SPAWN_DUP2, four, 4)]
        environment = os.environ | {"HOME": self._folder}
        pid = os.posix_spawnp(program, [program, *options], environment, file_actions=actions, setpgroup=0)
        for descriptor in (ours[0], theirs[1], three, four, null):
            os.close(descriptor)
        return pid, ours[1], theirs[0]

    def close(self) -> None:
        """End the browser with all its processes."""
        os.close(self._write)
        os.close(self._read)
        os.killpg(self._pid, signal.SIGKILL)
        os.waitpid(self._pid, 0)
        shutil.rmtree(self._folder, ignore_errors=True)

    def call(self, method: str, parameters: dict | None = None, session: str | None = "page") -> dict:
        """Ask the browser, or its page; what it answers."""
        number = next(self._count)
        message = {"id": number, "method": method, "params": parameters or {}}
        if session is not None:
            message["sessionId"] = self._session
        os.write(self._write, json.dumps(message).encode() + b"\0")
        answer = self._wait(lambda message: message.get("id") == number)
        assert "error" not in answer, f"{method}: {answer['error']}"
        return answer["result"]

    def _wait(self, wanted) -> dict:
        until = time.monotonic() + PATIENCE
        while True:
            for index, message in enumerate(self._messages):
                if wanted(message):
                    return self._messages.pop(index)
            ready, _, _ = select.select([self._read], [], [], max(until - time.monotonic(), 0))
            assert ready, "the browser says nothing"
            said = os.read(self._read, 1 << 20)
            assert said, "the browser has ended"
            *whole, self._heard = (self._heard + said).split(b"\0")
            for text in whole:
                self._hear(json.loads(text))

    def _hear(self, message: dict) -> None:
        parameters = message.get("params", {})
        match message.get("method"):
            case "Runtime.exceptionThrown":
                self.complaints.append(str(parameters["exceptionDetails"]))
            case "Runtime.consoleAPICalled" if parameters["type"] in ("error", "warning", "assert"):
                self.complaints.append(str(parameters["args"]))
            case "Log.entryAdded" if parameters["entry"]["level"] in ("error", "warning"):
                self.complaints.append(parameters["entry"]["text"])
            case "Network.requestWillBeSent":
                self.requests.append(parameters["request"]["url"])
            case "Page.loadEventFired" | None:
                self._messages.append(message)

    def open(self, page: Path, width: int = 1280, height: int = 900, dark: bool = False) -> None:
        """Load a file in a window of a size, and wait until it is there."""
        self.visit(page.resolve().as_uri(), width, height, dark)

    def visit(self, url: str, width: int = 1280, height: int = 900, dark: bool = False) -> None:
        """Load an address in a window of a size, and wait until it is there."""
        self._messages.clear()
        self.call(
            "Emulation.setDeviceMetricsOverride",
            {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 600},
        )
        self.call("Emulation.setTouchEmulationEnabled", {"enabled": width < 600})
        theme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.call("Emulation.setEmulatedMedia", {"features": [theme]})
        self.call("Page.navigate", {"url": url})
        self.loaded()

    def loaded(self) -> None:
        """Wait until the page that is loading is there; where it leads on to another one at once, until that one is."""
        self._wait(self._is_load)
        while not self.settle():
            self._wait(self._is_load)

    @staticmethod
    def _is_load(message: dict) -> bool:
        return message.get("method") == "Page.loadEventFired"

    def ask(self, script: str):
        """The value of an expression in the page; of a promise, what it comes to."""
        answer = self.call("Runtime.evaluate", {"expression": script, "returnByValue": True, "awaitPromise": True})
        assert "exceptionDetails" not in answer, answer["exceptionDetails"]
        return answer["result"].get("value")

    def settle(self) -> bool:
        """Wait until two frames have been drawn; False where the page gave way to another one meanwhile, as after a click."""
        try:
            self.ask("new Promise(done => requestAnimationFrame(() => requestAnimationFrame(() => done(1))))")
        except AssertionError as error:
            if "Inspected target navigated" not in str(error):
                raise
            return False
        return True

    def mouse(self, kind: str, x: float, y: float, **more: object) -> None:
        """mouseMoved, mousePressed, mouseReleased or mouseWheel, at a point of the window."""
        self.call("Input.dispatchMouseEvent", {"type": kind, "x": x, "y": y, **more})
        self.settle()

    def key(self, name: str, text: str = "") -> None:
        """Press a key and let it go."""
        self.call("Input.dispatchKeyEvent", {"type": "keyDown", "key": name, **({"text": text} if text else {})})
        self.call("Input.dispatchKeyEvent", {"type": "keyUp", "key": name})
        self.settle()

    def picture(self, path: Path, whole: bool = True) -> None:
        """Save what is seen as PNG; the whole page, or the window."""
        answer = self.call("Page.captureScreenshot", {"format": "png", "captureBeyondViewport": whole})
        path.write_bytes(base64.b64decode(answer["data"]))
