"""A headless Chromium that tests query about a page, through its own pipe and without a library."""

import fcntl
import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

CHROMIUM: Final = next(
    filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None
)
_OPTIONS: Final = (
    *("--headless=new", "--no-sandbox", "--disable-gpu", "--remote-debugging-pipe"),
    *("--no-first-run", "--disable-extensions", "--disable-background-networking"),
    "about:blank",
)


#: Starts the program that its arguments name, with two descriptors under the numbers 3 and 4.
_EXEC: Final = (
    "import os, sys; _, a, b, *program = sys.argv; os.dup2(int(a), 3); os.dup2(int(b), 4); "
    "os.execv(program[0], program)"
)


class Browser:
    """One tab, by Chromium's debugging protocol: messages of JSON that end in a zero byte.

    Attributes:
        requested: addresses that pages requested.
    """

    def __init__(self, to_browser: int, from_browser: int) -> None:
        self.requested: list[str] = []
        self._to, self._from = to_browser, from_browser
        self._rest, self._sent, self._session = b"", 0, ""
        tab = self.send("Target.createTarget", url="about:blank")["targetId"]
        attached = self.send("Target.attachToTarget", targetId=tab, flatten=True)
        self._session = attached["sessionId"]
        for domain in ("Page", "Network"):
            self.send(f"{domain}.enable")

    def send(self, method: str, **params: Any) -> dict[str, Any]:
        """Send a command and return its result."""
        self._sent += 1
        message: dict[str, Any] = {"id": self._sent, "method": method, "params": params}
        if self._session:
            message["sessionId"] = self._session
        os.write(self._to, json.dumps(message).encode() + b"\0")
        while (answer := self._receive()).get("id") != self._sent:
            self._note(answer)
        assert "error" not in answer, answer
        result: dict[str, Any] = answer["result"]
        return result

    def open(self, path: Path) -> None:
        """Load a page and wait until it is shown."""
        self.send("Page.navigate", url=path.as_uri())
        while (event := self._receive()).get("method") != "Page.loadEventFired":
            self._note(event)

    def ask(self, expression: str) -> Any:
        """Return the value of an expression in the page, as plain data."""
        answer = self.send("Runtime.evaluate", expression=expression, returnByValue=True)
        assert "exceptionDetails" not in answer, answer
        return answer["result"].get("value")

    def resize(self, width: int) -> None:
        """Show the page in a window of this width."""
        size = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": False}
        self.send("Emulation.setDeviceMetricsOverride", **size)

    def prefer(self, scheme: str) -> None:
        """Prefer light or dark colours."""
        features = [{"name": "prefers-color-scheme", "value": scheme}]
        self.send("Emulation.setEmulatedMedia", features=features)

    def _note(self, event: dict[str, Any]) -> None:
        if event.get("method") == "Network.requestWillBeSent":
            self.requested.append(event["params"]["request"]["url"])

    def _receive(self) -> dict[str, Any]:
        while b"\0" not in self._rest:
            received = os.read(self._from, 1 << 16)
            assert received, "Chromium ended"
            self._rest += received
        message, _, self._rest = self._rest.partition(b"\0")
        parsed: dict[str, Any] = json.loads(message)
        return parsed


@contextmanager
def open_browser(folder: Path) -> Iterator[Browser]:
    """Start Chromium with a profile in this folder, and end it with all its processes."""
    assert CHROMIUM is not None
    profile = [f"--user-data-dir={folder}"]
    commands_out, commands_in = os.pipe()
    answers_out, answers_in = os.pipe()
    # It reads commands from descriptor 3 and writes answers to 4, which may be others' here.
    ends = [fcntl.fcntl(end, fcntl.F_DUPFD, 10) for end in (commands_out, answers_in)]
    chromium = subprocess.Popen(
        [sys.executable, "-c", _EXEC, *map(str, ends), CHROMIUM, *profile, *_OPTIONS],
        pass_fds=ends,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    for descriptor in (commands_out, answers_in, *ends):
        os.close(descriptor)
    try:
        yield Browser(commands_in, answers_out)
    finally:
        os.killpg(chromium.pid, signal.SIGKILL)
        chromium.wait()
        for descriptor in (commands_in, answers_out):
            os.close(descriptor)
