"""JSON reports for tests of the page, made by the functions that a session makes them with."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any, Final, TypeAlias

from jsonschema import Draft202012Validator

from pytest_asperf.analysis.facts import Ran
from pytest_asperf.analysis.limit_verdict import judge_below, judge_within
from pytest_asperf.analysis.results import JudgedFigure, Limit, WithinLimits, Words
from pytest_asperf.analysis.stats.estimate import CHANGE, Estimate
from pytest_asperf.analysis.stats.intervals import median_interval
from pytest_asperf.analysis.stats.total_time import TotalTimeTest
from pytest_asperf.analysis.verdict import Subject, Verdict, judge_invalid
from pytest_asperf.config.engine_settings import EngineSettings
from pytest_asperf.config.workload import Workload
from pytest_asperf.errors import Advice
from pytest_asperf.measure.ab_speed import ABResult, Budget, WorkloadPairs
from pytest_asperf.measure.paired_runner import Pair
from pytest_asperf.measure.results import Provenance
from pytest_asperf.records.codec import decode
from pytest_asperf.records.kinds import (
    AnyRecord,
    BrokenRecord,
    ChunkFacts,
    Noted,
    PromptFacts,
    QuantRecord,
    RunFacts,
    SpeculationRecord,
    ThroughputRecord,
)
from pytest_asperf.records.report import GateFacts, Meta, Report
from pytest_asperf.records.report import read as read_document
from pytest_asperf.records.taken import compared_pairs
from pytest_asperf.report.json_report import document, serialise
from pytest_asperf.report.report_data import ReportData, shown_report
from tests.engine_facts import ENGINE, loaded

#: A record, with the test that noted it.
Noting: TypeAlias = "tuple[str, AnyRecord] | Noted"
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
#: The run record of a measurement.
_STATED: Final = Provenance(
    "m in old",
    Path("m.gguf"),
    "0" * 64,
    replace(ENGINE, library="llama-cpp-python", version="0.3.36"),
    loaded(
        threads=2,
        n_params=134_515_008,
        size_bytes=98_500_000,
        weights_mib={"CPU_Mapped": 93.9},
    ),
    None,
    EngineSettings(),
    title="SmolLM2 135M",
)
_RAN: Final = (("model", "fake:Q8_0"), ("sha256", "abc"), ("engine", "scripted"))
_RATES: Final = (84.2, 78.5, 85.0, 84.9, 60.1, 84.4, 83.9, 84.6)


def report(noted: Sequence[Noting], gate: GateFacts | None = None, **meta: Any) -> dict[str, Any]:
    """A report as another program reads it, valid by the schema."""
    rows = tuple(one if isinstance(one, Noted) else Noted(*one) for one in noted)
    headline = ("asperf: live, engine scripted",) if noted else ()
    whole = Report(meta=decode(Meta, META | meta), headline=headline, rows=rows, gate=gate)
    text = serialise(document(whole))
    _check_text(text)
    data: dict[str, Any] = json.loads(text)
    return data


@cache
def _check_text(text: str) -> None:
    """The check of a report, once for equal ones: it takes 0.1 s."""
    check_schema(json.loads(text))


def check_schema(document: Mapping[str, Any]) -> None:
    """Fail if a report does not match the package's schema."""
    _VALIDATOR.validate(document)


def shown(document: object, name: str = "r.json") -> ReportData:
    """A JSON document as a page has it."""
    return shown_report(read_document(document, name), name=name)


def read(noted: Sequence[Noting], name: str = "r.json", **meta: Any) -> ReportData:
    """The rows of records."""
    return shown(report(noted, **meta), name)


def rates(
    model: str,
    *,
    workload: str = "tg16",
    library: str = "",
    scale: float = 1.0,
    unit: str = "tok/s",
) -> ThroughputRecord:
    """A measurement of throughput with a slow run in it."""
    runs = (RunFacts(n_tokens=16, elapsed_ns=round(16e9 / rate)) for rate in _RATES)
    return ThroughputRecord(
        workload=workload,
        runs=tuple(runs),
        estimate=_rate().scaled(scale, unit),
        ran=replace(ran(model), library=library or _STATED.engine.library),
        facts=_RAN,
    )


def ran(model: str) -> Ran:
    """The run record, by the name of a model: `name:QUANT on engine`."""
    address = model.partition(" on ")[0]
    name, _, level = address.rpartition(":")
    known = (name, level) if name else (address, "")
    return replace(_STATED.facts(), model=model, spec=address, name=known[0], quant=known[1])


def claimed(model: str, at_least: float) -> Verdict:
    """An assertion about it."""
    subject = Subject(f"tg16 {model}", "live", _RAN)
    return judge_within(_rate(), subject, at_least=at_least)


def level(model: str, delta: float) -> QuantRecord:
    """A scored quantization."""
    own = ran(model)
    chunks = (
        ChunkFacts(n_tokens=256, nll_sum=500 + 256 * delta + n, baseline_nll_sum=500.0 + n)
        for n in range(6)
    )
    return QuantRecord(
        baseline=ran(f"{own.name}:F16"),
        baseline_name="F16",
        ppl=5.0,
        ppl_baseline=5.0,
        delta_ppl=_change(delta),
        size_bytes=round(1e6 * (1 - delta)),
        chunks=tuple(chunks),
        ran=own,
        facts=_RAN,
    )


def below(what: str, change: float, limit: float) -> Verdict:
    """An assertion about a change without a measurement of its own."""
    return judge_below(_change(change), limit, Subject(what, "live"))


def gate(candidate: float, *, n: int = 40) -> Verdict:
    """The verdict on pairs in which the candidate is that many times as slow."""
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
    return Subject("tg16 fake in b / fake in a", "live", ran).verdict(
        test.outcome_if_stopped,
        Words(threshold="within +5 %", measured=ratio.text()),
        figures=(JudgedFigure("tg16", ratio, at_most=1.05),),
        advice=(Advice("find the change between the builds"),),
        details=("differs: engine a 1 -> a 2",),
        compared=compared_pairs(pairs, result, sides),
    )


def speculation(label: str, gain: float, ratio: float) -> SpeculationRecord:
    """A measurement of a draft whose rounds emit 2.4 tokens."""
    prompt = PromptFacts(prompt=0, alone_ns=1_000_000, speculative_ns=round(1e6 / (1 + gain)))
    known: dict[str, Any] = {
        "label": label,
        "k": 2,
        "gain": _change(gain),
        "predicted_gain": _change(gain + 0.03),
        "ratio": Estimate(ratio, 0.9 * ratio, 1.1 * ratio, 5, method="median", unit="x"),
        "best_k": 2,
        "best_k_gain": 0.1,
        "acceptance": 0.6,
        "mean_length": 2.4,
        "drafting": 0.5,
        "verifying": 1.3,
        "prompts": ((prompt,), (prompt,)),
        "ran": ran("target"),
        "facts": _RAN,
    }
    return SpeculationRecord(**known)


def invalid(model: str = "fake") -> Verdict:
    """An assertion whose measurement broke."""
    subject = Subject(f"tg16 {model}", "live", _RAN)
    problems = ["logits are NaN in 3 of 8 runs", "the first at token 12"]
    asserted = WithinLimits(limits=(Limit(">=", 1.0, "tok/s"),))
    return judge_invalid(subject, problems, advice="mend the model", result=asserted)


def not_run(subject: str = "pp16 fake") -> BrokenRecord:
    """A check of a gate that could not be run."""
    return BrokenRecord(outcome="NOT RUN", subject=subject, found="it refused")


def whole() -> dict[str, Any]:
    """A report with an assertion of every kind, all quantizations, and hostile names."""
    long = "a-very-long-model-name-" * 30
    noted: list[tuple[str, AnyRecord]] = [
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
