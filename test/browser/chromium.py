"""Drives Chromium, without a window, by its DevTools protocol over two pipes."""

from __future__ import annotations

import base64
import fcntl
import json
import os
import select
import shutil
import subprocess
import tempfile
import time
from pathlib import Path
from types import TracebackType
from typing import Any

SECONDS = 60.0  # of a call, and of a condition
PROGRAM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")


def pipe() -> tuple[int, int]:
    """Both descriptors are above 9."""
    ends = os.pipe()
    high = [fcntl.fcntl(end, fcntl.F_DUPFD_CLOEXEC, 10) for end in ends]
    for end in ends:
        os.close(end)
    return high[0], high[1]


class Browser:
    """One process; `with` ends it."""

    def __init__(self) -> None:
        self.folder = tempfile.TemporaryDirectory(ignore_cleanup_errors=True)
        theirs, self.to = pipe()
        self.answers, other = pipe()
        options = [
            "--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--disable-dev-shm-usage",
            "--disable-background-networking", "--disable-component-update", "--no-first-run",
            "--remote-debugging-pipe", f"--user-data-dir={self.folder.name}", "about:blank",
        ]  # fmt: skip
        # The browser reads commands from descriptor 3 and answers on 4.
        script = f'exec "$@" 3<&{theirs} 4>&{other}'
        self.process = subprocess.Popen(
            ["bash", "-c", script, "bash", str(PROGRAM), *options],
            pass_fds=(theirs, other), start_new_session=True,
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )  # fmt: skip
        os.close(theirs)
        os.close(other)
        self.number = 0
        self.received = b""
        self.events: list[dict[str, Any]] = []

    def __enter__(self) -> Browser:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        os.close(self.to)  # the browser ends when its pipe does
        try:
            self.process.wait(10)
        except subprocess.TimeoutExpired:
            os.killpg(self.process.pid, 9)
            self.process.wait()
        os.close(self.answers)
        self.folder.cleanup()

    def call(self, method: str, session: str = "", **parameters: Any) -> dict[str, Any]:
        """Sends a command and returns its result; events that arrive meanwhile are kept."""
        self.number += 1
        message = {"id": self.number, "method": method, "params": parameters}
        if session:
            message["sessionId"] = session
        os.write(self.to, json.dumps(message).encode() + b"\0")
        deadline = time.monotonic() + SECONDS
        while True:
            answer = self.receive(deadline)
            if answer.get("id") == self.number:
                assert "error" not in answer, f"{method}: {answer['error']}"
                return dict(answer["result"])
            self.events.append(answer)

    def receive(self, deadline: float) -> dict[str, Any]:
        while b"\0" not in self.received:
            ready, _, _ = select.select([self.answers], [], [], max(0.0, deadline - time.monotonic()))
            assert ready, "the browser does not answer"
            more = os.read(self.answers, 1 << 20)
            assert more, "the browser has ended"
            self.received += more
        line, _, self.received = self.received.partition(b"\0")
        return dict(json.loads(line))


class Page:
    """A tab of a given size."""

    def __init__(self, browser: Browser, width: int, height: int, dark: bool = False) -> None:
        self.browser = browser
        target = browser.call("Target.createTarget", url="about:blank")["targetId"]
        self.session = browser.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Accessibility"):
            self.call(f"{domain}.enable")
        self.call(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=1,
            mobile=width < 600,
        )
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.call("Emulation.setEmulatedMedia", features=[scheme])

    def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        return self.browser.call(method, self.session, **parameters)

    def open(self, url: str) -> None:
        answer = self.call("Page.navigate", url=url)
        assert not answer.get("errorText"), f"{url}: {answer['errorText']}"
        self.wait("document.readyState === 'complete' && location.href !== 'about:blank'")

    def evaluate(self, expression: str) -> Any:
        answer = self.call("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in answer, f"{expression}: {answer['exceptionDetails']}"
        return answer["result"].get("value")

    def wait(self, condition: str) -> None:
        """Until the expression is true."""
        deadline = time.monotonic() + SECONDS
        while not self.evaluate(condition):
            assert time.monotonic() < deadline, f"not within {SECONDS:.0f} s: {condition}"
            time.sleep(0.05)

    def press(self, key: str, code: int) -> None:
        for kind in ("keyDown", "keyUp"):
            self.call("Input.dispatchKeyEvent", type=kind, key=key, code=key, windowsVirtualKeyCode=code)

    def problems(self) -> list[str]:
        """Errors and warnings of the console so far."""
        self.evaluate("0")  # what has been reported before is received now
        found = []
        for event in self.browser.events:
            text = json.dumps(event.get("params"))[:600]
            if event.get("sessionId") != self.session:
                continue
            if event["method"] in ("Runtime.exceptionThrown", "Runtime.consoleAPICalled"):
                found.append(text)
            if event["method"] == "Log.entryAdded" and event["params"]["entry"]["level"] != "verbose":
                found.append(text)
        return found

    def screenshot(self, path: Path, whole: bool = True) -> None:
        size = self.call("Page.getLayoutMetrics")["cssContentSize"]
        clip = {"x": 0, "y": 0, "width": size["width"], "height": size["height"], "scale": 1}
        more = {"captureBeyondViewport": True, "clip": clip} if whole else {}
        path.write_bytes(base64.b64decode(self.call("Page.captureScreenshot", format="png", **more)["data"]))
