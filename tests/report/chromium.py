"""A headless Chromium by its DevTools protocol, over two pipes: nothing but the browser itself."""

from __future__ import annotations

import base64
import json
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any

NAMES = ("chromium", "chromium-browser", "google-chrome", "chrome")
_FLAGS = (
    "--headless=new",
    "--no-sandbox",  # a container's root has none
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--disable-background-networking",
    "--disable-component-update",
    "--hide-scrollbars",
    "--no-first-run",
    "--remote-debugging-pipe",
)
# Chromium reads its orders from descriptor 3 and answers on 4.
_START = 'exec "$@" 3<&"$ORDERS" 4>&"$ANSWERS"'


def find() -> str:
    """Return the path of the browser; empty if there is none."""
    return next((path for name in NAMES if (path := shutil.which(name))), "")


class Chromium:
    """A browser with one page at a time.

    Attributes:
        errors: what the page has complained of: exceptions, console errors, failed loads.
    """

    def __init__(self) -> None:
        self._profile = tempfile.mkdtemp(prefix="chromium-")
        theirs_in, ours_out = os.pipe()
        ours_in, theirs_out = os.pipe()
        self._process = subprocess.Popen(
            ["bash", "-c", _START, "bash", find(), *_FLAGS, f"--user-data-dir={self._profile}"],
            env={**os.environ, "ORDERS": str(theirs_in), "ANSWERS": str(theirs_out)},
            pass_fds=(theirs_in, theirs_out),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        os.close(theirs_in)
        os.close(theirs_out)
        self._out, self._in = os.fdopen(ours_out, "wb", 0), os.fdopen(ours_in, "rb", 0)
        self._buffer, self._number = b"", 0
        self._session, self._target = "", ""
        self.errors: list[str] = []
        self._requests: list[str] = []

    def __enter__(self) -> Chromium:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        at: TracebackType | None,
    ) -> None:
        self._process.terminate()
        self._process.wait()
        self._out.close()
        self._in.close()
        shutil.rmtree(self._profile, ignore_errors=True)

    def open(
        self,
        path: Path,
        *,
        width: int = 1440,
        height: int = 900,
        dark: bool = False,
        scripts: bool = True,
    ) -> None:
        """A file in a new page, once it has loaded; the page before it is closed."""
        if self._target:
            self.call("Target.closeTarget", browser=True, targetId=self._target)
        target = self.call("Target.createTarget", browser=True, url="about:blank")["targetId"]
        self._target = target
        attached = self.call("Target.attachToTarget", browser=True, targetId=target, flatten=True)
        self._session, self.errors, self._requests = attached["sessionId"], [], []
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")
        phone = width < 600
        self.call(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=1,
            mobile=phone,
        )
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.call("Emulation.setEmulatedMedia", features=[scheme])
        self.call("Emulation.setScriptExecutionDisabled", value=not scripts)
        self.call("Page.navigate", url=path.resolve().as_uri())
        while self._read().get("method") != "Page.loadEventFired":
            pass

    @property
    def requests(self) -> list[str]:
        """Requests of the page, without that of itself."""
        return [url for url in self._requests[1:] if not url.startswith("data:")]

    def run(self, script: str) -> Any:
        """Return the value of an expression; wait for promises."""
        done = self.call(
            "Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True
        )
        assert "exceptionDetails" not in done, done["exceptionDetails"]
        return done["result"].get("value")

    def press(self, key: str) -> None:
        """Press a key; one letter also types it."""
        text = {"text": key} if len(key) == 1 else {}
        self.call("Input.dispatchKeyEvent", type="keyDown", key=key, **text)
        self.call("Input.dispatchKeyEvent", type="keyUp", key=key)

    def mouse(self, kind: str, x: float, y: float, **more: Any) -> None:
        """``mousePressed``, ``mouseReleased``, ``mouseMoved`` or ``mouseWheel``."""
        self.call("Input.dispatchMouseEvent", type=kind, x=x, y=y, **more)

    def click(self, x: float, y: float) -> None:
        """Click with the left button."""
        for kind in ("mousePressed", "mouseReleased"):
            self.mouse(kind, x, y, button="left", clickCount=1)

    def picture(self, *, whole: bool = False) -> bytes:
        """Return a PNG of the view, or of the whole page."""
        taken = self.call("Page.captureScreenshot", format="png", captureBeyondViewport=whole)
        return base64.b64decode(taken["data"])

    def pdf(self) -> bytes:
        """Return the page as PDF."""
        return base64.b64decode(self.call("Page.printToPDF", printBackground=True)["data"])

    def call(self, method: str, *, browser: bool = False, **parameters: Any) -> dict[str, Any]:
        """Send one command of the protocol; return its answer."""
        self._number += 1
        order = {"id": self._number, "method": method, "params": parameters}
        if self._session and not browser:
            order["sessionId"] = self._session
        self._out.write(json.dumps(order).encode() + b"\0")
        while True:
            answer = self._read()
            if answer.get("id") == self._number:
                assert "error" not in answer, (method, answer["error"])
                result: dict[str, Any] = answer["result"]
                return result

    def _read(self) -> dict[str, Any]:
        while b"\0" not in self._buffer:
            part = self._in.read(1 << 16)
            assert part, "the browser has ended"
            self._buffer += part
        line, _, self._buffer = self._buffer.partition(b"\0")
        message: dict[str, Any] = json.loads(line)
        self._note(message)
        return message

    def _note(self, message: dict[str, Any]) -> None:
        method, params = message.get("method"), message.get("params", {})
        if method == "Runtime.exceptionThrown":
            self.errors.append(str(params["exceptionDetails"]))
        elif method == "Runtime.consoleAPICalled" and params["type"] in ("error", "warning"):
            self.errors.append(str(params["args"]))
        elif method == "Log.entryAdded" and params["entry"]["level"] in ("error", "warning"):
            self.errors.append(params["entry"]["text"])
        elif method == "Network.requestWillBeSent":
            self._requests.append(params["request"]["url"])


@contextmanager
def started() -> Iterator[Chromium]:
    """Start a browser; stop it at the end."""
    with Chromium() as browser:
        yield browser
