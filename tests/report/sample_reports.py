"""JSON reports for tests of the page, made by the functions that a session makes them with."""

from __future__ import annotations

import json
from dataclasses import replace
from importlib.resources import files
from typing import TYPE_CHECKING, Any, Final

from jsonschema import Draft202012Validator

from pytest_asperf.analysis.limit_verdict import judge_below, judge_within
from pytest_asperf.analysis.stats.estimate import CHANGE, Estimate
from pytest_asperf.analysis.stats.intervals import median_interval
from pytest_asperf.analysis.stats.total_time import TotalTimeTest
from pytest_asperf.analysis.verdict import Subject, Verdict, judge_invalid
from pytest_asperf.config.workload import Workload
from pytest_asperf.measure.ab_speed import ABResult, Budget, WorkloadPairs
from pytest_asperf.measure.paired_runner import Pair
from pytest_asperf.report.json_report import document, serialise
from pytest_asperf.report.pair_data import pair_data
from pytest_asperf.report.read_report import read_report
from pytest_asperf.report.rows import ReportRow, estimate_data, proof, verdict_row
from tests.verdicts.test_gate import RAN

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pytest_asperf.report.report_data import ReportData

SCHEMA: Final[dict[str, Any]] = json.loads(
    files("pytest_asperf.report").joinpath("report.schema.json").read_text("utf-8")
)
_VALIDATOR: Final = Draft202012Validator(SCHEMA)
_LEVELS: Final = {"Q8_0": 0.001, "Q6_K": 0.004, "Q5_K_M": 0.009, "Q4_K_M": 0.03}
#: A model's name that a browser would run, and a terminal obey.
HOSTILE: Final = '</title><script>window.hit=1</script><img src=x onerror="hit=1">\x1b[31m\u202e'
META: Final[dict[str, Any]] = {
    "version": "0.1.0",
    "command": "pytest test_it.py",
    "options": ["--asperf-seed=7"],
    "time": "2026-11-22T19:00:00+00:00",
    "duration_s": 136.9,
    "host": "box",
    "python": "3.11.7",
    "seed": 7,
    "machine": {
        "hardware": "Xeon",
        "cpu": "Xeon",
        "os": "Linux",
        "arch": "x86_64",
        "logical_cores": 2,
        "memory_bytes": 25_000_000_000,
        "gpus": [],
    },
}
#: What the engine says, as a worker's answers have it.
_STATED: Final = replace(
    RAN,
    title="SmolLM2 135M",
    engine=replace(RAN.engine, verbatim={"library": "llama-cpp-python", "version": "0.3.36"}),
    loaded=replace(
        RAN.loaded,
        verbatim={
            "threads": 2,
            "n_params": 134_515_008,
            "size_bytes": 98_500_000,
            "buffers_mib": {"model": {"CPU_Mapped": 93.9}},
        },
    ),
)
_RAN: Final = (("model", "fake:Q8_0, sha256 abc"), ("engine", "scripted"))
_RATES: Final = (84.2, 78.5, 85.0, 84.9, 60.1, 84.4, 83.9, 84.6)


def report(
    noted: Sequence[tuple[str, ReportRow]], gate: Mapping[str, Any] | None = None, **meta: Any
) -> dict[str, Any]:
    """A report as another program reads it, valid by the schema."""
    headline = ["asperf: live, engine scripted"] if noted else []
    data: dict[str, Any] = json.loads(serialise(document(noted, headline, META | meta, gate)))
    check_schema(data)
    return data


def check_schema(document: Mapping[str, Any]) -> None:
    """Fail if a report is not as the package's schema says."""
    _VALIDATOR.validate(document)


def read(noted: Sequence[tuple[str, ReportRow]], name: str = "r.json", **meta: Any) -> ReportData:
    """The same, as a page has it."""
    return read_report(report(noted, **meta), name=name)


def rates(model: str, *, workload: str = "tg16", library: str = "") -> ReportRow:
    """A measurement of throughput with a slow run in it."""
    runs = [{"n_tokens": 16, "elapsed_ns": round(16e9 / rate), "load": 0} for rate in _RATES]
    raw = {"workload": workload, "runs": runs, "estimate": estimate_data(_rate()), **proof(_STATED)}
    raw["engine"] = raw["engine"] | ({"library": library} if library else {})
    return ReportRow(model, workload, _rate().text(), "8 runs", ran=_RAN, raw=raw)


def claimed(model: str, at_least: float) -> ReportRow:
    """A claim about it."""
    subject = Subject(f"tg16 {model}", "live", _RAN)
    return verdict_row(judge_within(_rate(), subject, at_least=at_least))


def level(model: str, delta: float) -> ReportRow:
    """A scored level."""
    base = model.partition(":")[0]
    change = _change(delta)
    chunks = [
        {"n_tokens": 256, "nll_sum": 500 + 256 * delta + n, "baseline_nll_sum": 500 + n}
        for n in range(6)
    ]
    raw = {
        "delta_ppl": estimate_data(change),
        "size_bytes": round(1e6 * (1 - delta)),
        "chunks": chunks,
        "baseline": {"model": f"{base}:F16"},
    }
    return ReportRow(model, "PPL vs F16", change.text(), "6 chunks", ran=_RAN, raw=raw)


def below(what: str, change: float, limit: float) -> ReportRow:
    """A claim about a change that no measurement is."""
    return verdict_row(judge_below(_change(change), limit, Subject(what, "live")))


def gate(candidate: float, *, n: int = 40) -> ReportRow:
    """The verdict on pairs in which the candidate takes so many times as long."""
    test = TotalTimeTest(0.05, max_pairs=n)
    pairs = WorkloadPairs(Workload("tg", 16), test, [])
    while test.outcome is None:
        base = 1_000_000 + 5000 * (test.n % 3)
        times = tuple(round(candidate * (base + 3000 * k)) for k in range(4))
        is_first = test.n % 2 == 1
        base_ns = tuple(base + 3000 * k for k in range(4))
        pairs.add(Pair(base_ns, times, candidate_first=is_first, n_tokens=(4, 4)))
    ratio = test.estimate.as_ratio()
    sides = ("baseline", "candidate")
    facts = (("engine", ("a 1", "a 2")), ("device", ("CPU", "CPU")))
    ran = tuple(
        (f"{side} {k}", v) for k, both in facts for side, v in zip(sides, both, strict=True)
    )
    result = ABResult(
        (pairs,),
        draws_cores=False,
        budget=Budget(0.05, 120, 60.0, 0),
        ran=(_STATED, _STATED),
        same_tokens=True,
    )
    verdict = Verdict(
        test.outcome,
        Subject("tg16 fake in b / fake in a", "live", ran),
        "within +5 %",
        ratio.text(),
        (("tg16", ratio),),
        "find the change between the builds",
        ("differs: engine a 1 -> a 2",),
        accepted=((None, 1.05),),
        raw=pair_data(pairs, result, sides),
    )
    return verdict_row(verdict)


def speculation(label: str, gain: float, ratio: float) -> ReportRow:
    """A measurement of a draft."""
    estimates = {
        "gain": _change(gain),
        "predicted_gain": _change(gain + 0.03),
        "ratio": Estimate(ratio, 0.9 * ratio, 1.1 * ratio, 5, method="median", unit="x"),
    }
    run = {"alone_ns": 1_000_000, "speculative": {"elapsed_ns": round(1e6 / (1 + gain))}}
    raw = {
        **{key: estimate_data(value) for key, value in estimates.items()},
        "break_even_ratio": None,
        "best_k": {"k": 2, "gain": 0.1},
        "acceptance": 0.6,
        "mean_length": 2.4,
        "drafting": 0.5,
        "verifying": 1.3,
        "trips": [],
        "pairs": [[run], [run]],
    }
    return ReportRow(label, "SD gain", _change(gain).text(), "2 pairs", ran=_RAN, raw=raw)


def invalid(model: str = "fake") -> ReportRow:
    """A claim whose measurement broke."""
    subject = Subject(f"tg16 {model}", "live", _RAN)
    problems = ["logits are NaN in 3 of 8 runs", "the first at token 12"]
    return verdict_row(
        judge_invalid(subject, "at least 1 tok/s", problems, remedy="mend the model")
    )


def whole() -> dict[str, Any]:
    """A report with a claim of every kind, all levels, and hostile names."""
    long = "a-very-long-model-name-" * 30
    noted = [
        ("test_a.py::test_rate", rates("fake:Q8_0")),
        ("test_a.py::test_rate", claimed("fake:Q8_0", 10)),
        ("test_a.py::test_fast", rates(HOSTILE)),
        ("test_a.py::test_fast", claimed(HOSTILE, 9999)),
        ("test_a.py::test_open", rates(long)),
        ("test_a.py::test_open", claimed(long, 84)),
        ("test_b.py::test_broken[<b>]", invalid()),
        *(("test_c.py::test_ladder", level(f"fake:{n}", d)) for n, d in _LEVELS.items()),
        (
            "test_c.py::test_ladder",
            below("ΔPPL", 0.03, 0.01),
        ),
        ("test_c.py::test_alone", rates("fake:Q4_K_M")),
        ("test_d.py::test_gate", gate(1.001)),
        ("test_d.py::test_slow", gate(1.3)),
        ("test_e.py::test_sd", speculation("draft → target, k=4", 0.31, 6.0)),
        ("test_e.py::test_sd", speculation(f"{HOSTILE} → target, k=2", -0.2, 1.4)),
    ]
    return report(noted)


def _rate() -> Estimate:
    return median_interval(_RATES, unit="tok/s", counted="runs")


def _change(point: float) -> Estimate:
    return Estimate(
        point, point - 0.005, point + 0.006, 6, method="t", unit=CHANGE, counted="chunks"
    )
