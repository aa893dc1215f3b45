"""What a draft step costs over llama.cpp's RPC, by the delay of the link, beside a local one.

Both machines are this one. The link's delay is made by a relay, because network namespaces with a
shaped link need a kernel module that few machines have loaded.
"""

from __future__ import annotations

import socket
import statistics
import sys
import tempfile
import threading
import time
from pathlib import Path
from queue import SimpleQueue
from typing import Final

from build_tools import tools_folder
from models import level_files
from timing import table

from pytest_asperf.config.engine_settings import EngineSettings
from pytest_asperf.engine_process import EngineBuild, Worker
from pytest_asperf.modelfiles.shipped import shipped_models
from pytest_asperf.worker.rpc_remote import Remote

sys.path.append(str(Path(__file__).parents[1]))
from tests.rpc_library import rpc_python

#: One way, in ms.
_DELAYS_MS: Final = (0.0, 0.2, 1.0, 5.0)
_TOKENS: Final = 64
_ROUNDS: Final = 5


class Relay:
    """Passes bytes on to a port, each after a delay in either direction."""

    def __init__(self, port: int, delay_s: float) -> None:
        self._target, self._delay_s = port, delay_s
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        while True:
            client, _ = self._listener.accept()
            server = socket.create_connection(("127.0.0.1", self._target))
            for link in (client, server):
                link.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._pipe(client, server)
            self._pipe(server, client)

    def _pipe(self, source: socket.socket, target: socket.socket) -> None:
        held: SimpleQueue[tuple[float, bytes]] = SimpleQueue()

        def take() -> None:
            while data := source.recv(1 << 20):
                held.put((time.monotonic() + self._delay_s, data))
            held.put((0.0, b""))

        def give() -> None:
            while True:
                due, data = held.get()
                if not data:
                    target.shutdown(socket.SHUT_WR)
                    return
                time.sleep(max(0.0, due - time.monotonic()))
                target.sendall(data)

        for work in (take, give):
            threading.Thread(target=work, daemon=True).start()


def _step_us(worker: Worker, path: Path, address: str | None) -> tuple[float, float]:
    """The median time of a step of the draft, and the round trip, in microseconds."""
    settings = EngineSettings(threads=1, remote=address)
    loaded = worker.load("draft", path, settings)
    worker.generate("draft", [5] * 8, 0)
    run = worker.generate("draft", list(range(5, 5 + _TOKENS)), 0)
    worker.clear()
    trip = loaded.remote.round_trip_us if loaded.remote else 0.0
    return statistics.median(run.step_ns) / 1000, trip


def main() -> None:
    """Print the table."""
    (spec,) = (spec for spec in shipped_models() if spec.name == "asperf-draft")
    draft = level_files(spec, ("Q8_0",))["Q8_0"]
    tools = tools_folder()
    remote = Remote("loopback", str(tools))
    relays = {delay: Relay(remote.port, delay / 1000) for delay in _DELAYS_MS}
    addresses: dict[str, str | None] = {"this process": None, "RPC, loopback": remote.endpoint}
    for delay, relay in relays.items():
        addresses[f"RPC, relay of {delay:g} ms each way"] = f"127.0.0.1:{relay.port}"
    found: dict[str, list[tuple[float, float]]] = {name: [] for name in addresses}
    with tempfile.TemporaryDirectory() as folder:
        build = EngineBuild("llama_cpp", rpc_python(tools, Path(folder) / "venv"))
        for _ in range(_ROUNDS):
            for name, address in addresses.items():
                with Worker(build, call_timeout_s=120) as worker:
                    found[name].append(_step_us(worker, draft, address))
    remote.close()
    local = statistics.median(step for step, _ in found["this process"])
    near, near_trip = map(statistics.median, zip(*found["RPC, loopback"], strict=True))
    rows = []
    for name, figures in found.items():
        steps, trips = zip(*figures, strict=True)
        step, trip = statistics.median(steps), statistics.median(trips)
        # One round trip a step more than on loopback, where what is left is the protocol's own.
        predicted = near - local + trip - near_trip if trip else 0.0
        rows.append(
            (
                name,
                f"{trip:.0f} µs",
                f"{step:.0f} µs",
                f"{min(steps):.0f} to {max(steps):.0f}",
                f"{step - local:+.0f} µs",
                f"{predicted:+.0f} µs",
            )
        )
    header = ("draft computed in", "round trip", "step", "range", "overhead", "predicted")
    print(table(header, rows))


if __name__ == "__main__":
    main()
