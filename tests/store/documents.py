"""Documents of nightly runs, in the shape of a report, and their parts."""

import datetime as dt
import math
from typing import Any, Final

from pytest_asperf.analysis.facts import ComparedPairs, PairFacts, Ran
from pytest_asperf.analysis.outcome import Outcome
from pytest_asperf.analysis.results import JudgedFigure, Words
from pytest_asperf.analysis.stats.estimate import Estimate
from pytest_asperf.analysis.verdict import Verdict
from pytest_asperf.records.kinds import AnyRecord, Noted, ThroughputRecord
from pytest_asperf.records.report import row_data

#: The first run; each further one begins a day later.
FIRST: Final = dt.datetime(2026, 11, 1, 2, tzinfo=dt.UTC)


def meta(night: float = 0, **changed: Any) -> dict[str, Any]:
    """The head of a run's report; `machine` changes facts of the machine."""
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


def proof(
    model: str = "m",
    *,
    version: str = "1",
    sha256: str = "",
    layers_offloaded: int = 0,
    **asked: Any,
) -> Ran:
    """The run record; `asked` are the settings."""
    release = f"lib {version}, ggml commit abc, libraries sha256 {version * 12}"
    return Ran(
        model=model,
        spec=model,
        name=model,
        sha256=sha256 or f"sha-{model}",
        engine="llama_cpp",
        library="lib",
        version=version,
        libraries=release,
        layers_offloaded=layers_offloaded,
        requested=asked,
    )


def estimate(point: float, unit: str) -> Estimate:
    """An estimate with an interval of plus or minus 1 %."""
    low, high = point - 0.01 * abs(point), point + 0.01 * abs(point)
    return Estimate(point, low, high, 10, method="by hand", unit=unit)


def row(record: AnyRecord, *, test: str = "test_it.py::test_tg") -> dict[str, Any]:
    """A row of a report."""
    return row_data(Noted(test, record))


def rate(
    tok_s: float, *, workload: str = "tg128", bytes_per_token: int | None = None, **ran: Any
) -> dict[str, Any]:
    """A measurement of throughput."""
    return row(
        ThroughputRecord(
            workload=workload,
            estimate=estimate(tok_s, "tok/s"),
            bytes_per_token=bytes_per_token,
            ran=proof(**ran),
        )
    )


def gated(
    ratio: float,
    *,
    outcome: str = "PASS",
    base: str = "1",
    candidate: str = "2",
    source: str = "live",
    **compared: Any,
) -> dict[str, Any]:
    """A gate of two builds, in which the candidate was `ratio` times as slow."""
    pair = PairFacts(baseline=(1_000,), candidate=(1_000,), ratio=ratio, total_ratio=ratio)
    known: dict[str, Any] = {
        "variants": ("baseline", "candidate"),
        "models": ("m", "m"),
        "ran": (proof(version=base), proof(version=candidate)),
        "timed": "tg128",
        "unit": "tok/s",
        "medians": (100.0, 100.0 / ratio),
        "pairs": (pair,) * 10,
    }
    verdict = Verdict(
        outcome=Outcome(outcome),
        source=source,
        subject="tg128 m",
        result=Words(measured="in words"),
        figures=(JudgedFigure("tg128", estimate(ratio, "")),),
        compared=ComparedPairs(**(known | compared)),
    )
    return row(verdict, test="test_it.py::test_gate")


def night(*rows: dict[str, Any], number: float = 0, **changed: Any) -> dict[str, Any]:
    """A report of one run."""
    return {"schema": 3, "meta": meta(number, **changed), "headline": [], "rows": list(rows)}


def drifting(number: int, *, step_at: int = 30) -> dict[str, Any]:
    """A run of a rate that is 5 % lower from one run on, with a small ripple."""
    level = 100.0 if number < step_at else 95.0
    return night(rate(level * math.exp(0.01 * math.sin(number))), number=number)
