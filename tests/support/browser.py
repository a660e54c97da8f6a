"""A headless Chromium for tests, driven by ChromeDriver over the W3C protocol: JSON requests."""

from __future__ import annotations

import base64
import contextlib
import json
import os
import shutil
import socket
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

CHROMIUM = shutil.which("chromium") or shutil.which("google-chrome")
DRIVER = shutil.which("chromedriver")
MISSING = "no Chromium: install Debian's packages chromium and chromium-driver"
_ELEMENT = "element-6066-11e4-a52e-4f735466cecf"
_FLAGS = (
    "--headless=new --no-sandbox --disable-gpu --disable-quic --no-first-run --disable-sync "
    "--disable-background-networking --disable-component-update --disable-dev-shm-usage "
    "--hide-scrollbars"
)


class Browser:
    """One browser window."""

    def __init__(self, session: str) -> None:
        self._session = session

    def _call(self, method: str, path: str, body: dict[str, Any] | None = None) -> Any:
        return _request(method, f"{self._session}/{path}", body)

    def open(self, page: Path) -> None:
        self._call("POST", "url", {"url": page.resolve().as_uri()})

    def run(self, script: str, *args: Any) -> Any:
        """Run ``script``, the body of a function, and return its result."""
        return self._call("POST", "execute/sync", {"script": script, "args": list(args)})

    def find(self, selector: str) -> str:
        element = self._call("POST", "element", {"using": "css selector", "value": selector})
        return str(element[_ELEMENT])

    def click(self, selector: str) -> None:
        self._call("POST", f"element/{self.find(selector)}/click", {})

    def type(self, selector: str, text: str) -> None:
        self._call("POST", f"element/{self.find(selector)}/value", {"text": text})

    def press(self, *keys: str) -> None:
        """Press keys one after the other, wherever the focus is."""
        actions = [{"type": kind, "value": key} for key in keys for kind in ("keyDown", "keyUp")]
        self._call(
            "POST", "actions", {"actions": [{"type": "key", "id": "keys", "actions": actions}]}
        )

    def text(self, selector: str) -> str:
        return str(self.run("return document.querySelector(arguments[0]).textContent", selector))

    def count(self, selector: str) -> int:
        return int(self.run("return document.querySelectorAll(arguments[0]).length", selector))

    def scheme(self, name: str) -> None:
        """Set the preferred color scheme, ``light`` or ``dark``."""
        self._media(features=[{"name": "prefers-color-scheme", "value": name}])

    def media(self, name: str) -> None:
        """Set the medium, ``screen`` or ``print``."""
        self._media(media=name)

    def _media(self, **settings: Any) -> None:
        self._cdp("Emulation.setEmulatedMedia", **settings)

    def _cdp(self, command: str, **parameters: Any) -> Any:
        return self._call("POST", "goog/cdp/execute", {"cmd": command, "params": parameters})

    def resize(self, width: int, height: int) -> None:
        self._call("POST", "window/rect", {"width": width, "height": height})

    def set_screen_width(self, width: int) -> None:
        """Lay the page out for a screen; windows cannot be this narrow. 0 is the window again."""
        if not width:
            self._cdp("Emulation.clearDeviceMetricsOverride")
            return
        settings = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": False}
        self._cdp("Emulation.setDeviceMetricsOverride", **settings)

    def screenshot(self, file: Path) -> None:
        file.write_bytes(base64.b64decode(self._call("GET", "screenshot")))

    def busy(self) -> float:
        """Return the processor seconds of the pages, which do not depend on other processes."""
        self._cdp("Performance.enable", timeDomain="threadTicks")
        metrics = self._cdp("Performance.getMetrics")["metrics"]
        return next(
            float(metric["value"]) for metric in metrics if metric["name"] == "TaskDuration"
        )

    def errors(self) -> list[str]:
        """Return the messages of the page's console since the last call."""
        logged = self._call("POST", "se/log", {"type": "browser"})
        return [entry["message"] for entry in logged]


@contextlib.contextmanager
def chromium(profile: Path) -> Iterator[Browser]:
    """Start ChromeDriver and one window, and end both."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    driver = subprocess.Popen(
        [str(DRIVER), f"--port={port}"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    base = f"http://127.0.0.1:{port}"
    try:
        _wait(base)
        session = _request("POST", f"{base}/session", {"capabilities": _capabilities(profile)})
        session_url = f"{base}/session/{session['sessionId']}"
        try:
            yield Browser(session_url)
        finally:
            _request("DELETE", session_url)
    finally:
        driver.terminate()
        driver.wait(timeout=20)


def _capabilities(profile: Path) -> dict[str, Any]:
    args = [*_FLAGS.split(), f"--user-data-dir={profile}", "--window-size=1280,900"]
    options = {"binary": CHROMIUM, "args": args}
    return {"alwaysMatch": {"goog:chromeOptions": options, "goog:loggingPrefs": {"browser": "ALL"}}}


def _wait(base: str) -> None:
    for _ in range(600):  # a busy machine may take its time
        with contextlib.suppress(OSError):
            if _request("GET", f"{base}/status")["ready"]:
                return
        time.sleep(0.1)
    raise TimeoutError(f"ChromeDriver does not answer at {base}")


def _request(method: str, url: str, body: dict[str, Any] | None = None) -> Any:
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(url, data, {"Content-Type": "application/json"}, method=method)
    # The driver runs on this machine, so a proxy of the environment is not used.
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with opener.open(request, timeout=60) as answer:
            return json.loads(answer.read())["value"]
    except urllib.error.HTTPError as error:
        with error:
            error_value = json.loads(error.read())["value"]
        raise AssertionError(
            f"{error_value['error']}: {error_value['message'].splitlines()[0]}"
        ) from None


def available() -> bool:
    """Whether there is a browser and its driver."""
    return bool(CHROMIUM and DRIVER and os.access(DRIVER, os.X_OK))
