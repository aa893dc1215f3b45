"""The cost of a draft step over llama.cpp's RPC, by the delay of the link.

Both hosts are network namespaces of this machine, with a link of 1 Gbit/s between them. Needs Linux
with TUN, `unshare` and `ip`; no root where users may make namespaces.
"""

from __future__ import annotations

import statistics
import sys
import tempfile
import time
from contextlib import suppress
from pathlib import Path
from typing import Final

from installed_tools import tools_folder
from models import level_files
from shaped_link import THERE, ShapedLink, enter_namespace
from timing import table

from pytest_asperf.config.engine_settings import EngineSettings
from pytest_asperf.engine_process import EngineBuild, Worker
from pytest_asperf.modelfiles.hub_cache import shipped_models
from pytest_asperf.worker.engine import RefusalError
from pytest_asperf.worker.rpc_remote import Remote

sys.path.append(str(Path(__file__).parents[1]))
from tests.rpc_library import rpc_python

#: One way, in ms.
_DELAYS_MS: Final = (0.0, 0.2, 1.0, 5.0)
_TOKENS: Final = 64
_ROUNDS: Final = 5
_PORT: Final = 50052


def _step_us(worker: Worker, path: Path, address: str | None) -> tuple[float, float]:
    """The median time of a step of the draft, and the round trip, in microseconds."""
    settings = EngineSettings(threads=1, remote=address)
    loaded = worker.load("draft", path, settings)
    worker.generate("draft", [5] * 8, 0)
    run = worker.generate("draft", list(range(5, 5 + _TOKENS)), 0)
    worker.clear()
    trip = loaded.remote.round_trip_us if loaded.remote else 0.0
    return statistics.median(run.step_ns) / 1000, trip


def _await(remote: Remote) -> None:
    for _ in range(100):
        with suppress(RefusalError):
            remote.greet()
            return
        time.sleep(0.1)


def main() -> None:
    """Print the table."""
    enter_namespace()
    (spec,) = (spec for spec in shipped_models() if spec.name == "asperf-draft")
    draft = level_files(spec, ("Q8_0",))["Q8_0"]
    tools = tools_folder()
    near = Remote("loopback", str(tools))
    link = ShapedLink([str(tools / "ggml-rpc-server"), "-H", THERE, "-p", str(_PORT)])
    _await(Remote(f"{THERE}:{_PORT}"))
    arms: dict[str, tuple[str | None, float]] = {"this process": (None, 0.0)}
    arms["RPC, loopback"] = near.endpoint, 0.0
    for delay in _DELAYS_MS:
        arms[f"RPC, 1 Gbit/s, {delay:g} ms each way"] = f"{THERE}:{_PORT}", delay / 1000
    found: dict[str, list[tuple[float, float]]] = {name: [] for name in arms}
    with tempfile.TemporaryDirectory() as folder:
        build = EngineBuild("llama_cpp", rpc_python(tools, Path(folder) / "venv"))
        for _ in range(_ROUNDS):
            for name, (address, link.delay_s) in arms.items():
                with Worker(build, call_timeout_s=120) as worker:
                    found[name].append(_step_us(worker, draft, address))
    near.close()
    link.process.kill()
    local = statistics.median(step for step, _ in found["this process"])
    step_near, near_trip = map(statistics.median, zip(*found["RPC, loopback"], strict=True))
    rows = []
    for name, figures in found.items():
        steps, trips = zip(*figures, strict=True)
        step, trip = statistics.median(steps), statistics.median(trips)
        # One round trip a step more than on loopback, whose rest is the protocol's own.
        predicted = step_near - local + trip - near_trip if trip else 0.0
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
