"""Documents of nights, in the shape of a report, and what they are made of."""

from __future__ import annotations

import datetime as dt
import math
from typing import Any, Final

#: The first night; each further one begins a day later.
FIRST: Final = dt.datetime(2026, 11, 1, 2, tzinfo=dt.UTC)


def meta(night: float = 0, **changed: Any) -> dict[str, Any]:
    """The head of a night's report; `machine` changes facts of the machine."""
    machine = {
        "id": "aaaaaaaaaaaa",
        "hardware": "m4",
        "os": "macOS",
        "os_version": "15.1",
        "gpus": [],
    }
    return {
        "version": "0.1.0",
        "command": "pytest",
        "time": (FIRST + dt.timedelta(days=night)).isoformat(),
        "duration_s": 60.0,
        "host": "mini",
        **changed,
        "machine": {**machine, **changed.get("machine", {})},
    }


def proof(model: str = "m", *, version: str = "1", **requested: Any) -> dict[str, Any]:
    """What ran."""
    engine: dict[str, Any] = {
        "engine": "llama_cpp",
        "library": "lib",
        "version": version,
        "ggml_commit": "abc",
        "library_sha256": version * 12,
        "devices": [],
        "default_threads": None,
    }
    return {"model": model, "sha256": f"sha-{model}", "engine": engine, "requested": requested}


def estimate(point: float, unit: str) -> dict[str, Any]:
    """An estimate with an interval of 1 % to both sides."""
    low, high = point - 0.01 * abs(point), point + 0.01 * abs(point)
    return {"point": point, "low": low, "high": high, "n": 10, "unit": unit}


def row(
    raw: dict[str, Any], *, test: str = "test_it.py::test_tg", outcome: str = ""
) -> dict[str, Any]:
    """A row of a report."""
    return {"test": test, "outcome": outcome, "source": "live", "raw": raw}


def rate(tok_s: float, *, workload: str = "tg128", **ran: Any) -> dict[str, Any]:
    """A measurement of throughput."""
    return row({"workload": workload, "estimate": estimate(tok_s, "tok/s"), **proof(**ran)})


def gated(
    ratio: float, *, outcome: str = "PASS", base: str = "1", candidate: str = "2", **claim: Any
) -> dict[str, Any]:
    """A gate of two builds, where the candidate took `ratio` times as long."""
    figure = {**estimate(ratio, ""), "label": "tg128"}
    comparison = {
        "sides": ["baseline", "candidate"],
        "ran": [proof(version=base), proof(version=candidate)],
        "timed": "tg128",
        "unit": "tok/s",
        "medians": [100.0, 100.0 / ratio],
        "pairs": [{"ratio": ratio}] * 10,
        **claim,
    }
    raw = {"figures": [figure], "comparison": comparison}
    return row(raw, test="test_it.py::test_gate", outcome=outcome)


def night(*rows: dict[str, Any], number: float = 0, **changed: Any) -> dict[str, Any]:
    """A report of one night."""
    return {"schema": 1, "meta": meta(number, **changed), "rows": list(rows)}


def drifting(number: int, *, step_at: int = 30) -> dict[str, Any]:
    """A night of a rate that is 5 % lower from one night on, with a small ripple."""
    level = 100.0 if number < step_at else 95.0
    return night(rate(level * math.exp(0.01 * math.sin(number))), number=number)
