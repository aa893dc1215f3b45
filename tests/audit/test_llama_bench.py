import csv
import io
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from pytest_asperf.audit.judge import judge_file
from pytest_asperf.audit.known import Known, Options, parse_options
from pytest_asperf.audit.read import read_file
from pytest_asperf.audit.result import FileFindings
from pytest_asperf.hardware.machine import Machine
from pytest_asperf.hardware.profiles import find_profile
from pytest_asperf.worker.printed.bench_rows import BenchRow

FIELDS: dict[str, Any] = {
    "build_commit": "0badcafe",
    "build_number": 9000,
    "cpu_info": "Apple M2 Ultra",
    "gpu_info": "Apple M2 Ultra",
    "backends": "MTL",
    "model_filename": "/models/it's a model.gguf",
    "model_type": "llama 8B Q8_0",
    "model_size": 8_000_000_000,
    "n_gpu_layers": 99,
    "flash_attn": 1,
    "n_prompt": 0,
    "n_gen": 128,
    "n_depth": 0,
    "avg_ns": 2_000_000_000,
    "stddev_ns": 10_000_000,
    "avg_ts": 64.0,
    "stddev_ts": 0.3,
}


def judged(path: Path, options: Options | None = None) -> FileFindings:
    """Return a file's figures."""
    reading = read_file(path)
    return judge_file(reading, Known.of([reading], options or Options()))


def bench_rows(path: Path) -> list[BenchRow]:
    """Return the tests in a file."""
    log = read_file(path).log
    assert log is not None
    return log.bench.rows


def entry(rates: list[float] | None = None, **changes: Any) -> dict[str, Any]:
    """Return one test of llama-bench as its JSON has it, with samples of these rates."""
    fields = FIELDS | changes
    if rates:
        n_tokens = fields["n_prompt"] + fields["n_gen"]
        fields["samples_ns"] = [round(n_tokens * 1e9 / rate) for rate in rates]
        fields["avg_ts"] = sum(rates) / len(rates)
        fields["avg_ns"] = sum(fields["samples_ns"]) / len(rates)
    return fields


def as_csv(fields: dict[str, Any]) -> str:
    """Return a test as llama-bench's CSV has it."""
    out = io.StringIO()
    writer = csv.DictWriter(out, fields, quoting=csv.QUOTE_ALL, lineterminator="\n")
    out.write(",".join(fields) + "\n")
    writer.writerow(fields)
    return out.getvalue()


def as_sql(fields: dict[str, Any]) -> str:
    """Return a test as llama-bench's SQL has it."""
    values = ", ".join("'" + str(value).replace("'", "''") + "'" for value in fields.values())
    insert = f"INSERT INTO llama_bench ({', '.join(fields)}) VALUES ({values});"  # noqa: S608  # never executed
    return f"CREATE TABLE IF NOT EXISTS llama_bench (\n  n_gen INTEGER\n);\n\n{insert}\n"


@pytest.mark.parametrize("form", ["json", "jsonl", "csv", "sql"])
def test_all_forms_hold_the_same_test(form: str, tmp_path: Path) -> None:
    """One test reads the same from JSON, JSON lines, CSV and SQL."""
    fields = entry()
    write = {
        "json": lambda: json.dumps([fields], indent=2),
        "jsonl": lambda: json.dumps(fields) + "\n",
        "csv": lambda: as_csv(fields),
        "sql": lambda: as_sql(fields),
    }
    path = tmp_path / "bench"
    path.write_text(write[form]())
    (row,) = bench_rows(path)
    assert (row.model, row.test) == ("it's a model.gguf", "tg128")
    assert (row.mean_rate, row.sd_rate, row.mean_ns) == (64.0, 0.3, 2e9)
    assert row.model_bytes == 8_000_000_000


def test_the_default_table_is_read(tmp_path: Path) -> None:
    """Model, test, rate and build are read from Markdown, in the middle of a log."""
    path = tmp_path / "bench.md"
    path.write_text(
        "ggml_metal_init: allocating\n"
        "| model         |     size |  params | backend | ngl |          test |            t/s |\n"
        "| ------------- | -------: | ------: | ------- | --: | ------------: | -------------: |\n"
        "| llama 8B Q8_0 | 7.95 GiB | 8.03 B  | Metal   |  -1 |         pp512 | 800.10 ± 1.20  |\n"
        "| llama 8B Q8_0 | 7.95 GiB | 8.03 B  | Metal   |  -1 | tg128 @ d1024 |  64.00 ± 0.30  |\n"
        "\nbuild: 0badcafe (9000)\n"
    )
    reading = read_file(path)
    assert [(row.test, row.mean_rate) for row in bench_rows(path)] == [
        ("pp512", 800.1),
        ("tg128@d1024", 64.0),
    ]
    assert reading.format == "llama-bench, build 9000 (0badcafe)"
    assert "n_gpu_layers=-1 was requested; the value that ran is unknown" in judged(path).notes


def test_rates_are_taken_from_samples(tmp_path: Path) -> None:
    """A stalled repetition moves the printed mean and not the rate, and the guard reports it."""
    path = tmp_path / "bench.jsonl"
    path.write_text(json.dumps(entry([250, 251, 252, 253, 2.45])))
    found = judged(path)
    (figure,) = found.figures
    assert figure.value is not None
    assert figure.value.point == pytest.approx(251, rel=1e-6)
    assert figure.value.n == 5
    assert [guard_finding.guard for _, guard_finding in found.guard_findings] == ["spread"]
    assert "201.7 tok/s is printed" in found.notes[0]


def test_few_samples_give_a_mean(tmp_path: Path) -> None:
    """Three repetitions have no median with an interval, and so a mean by Student's t."""
    path = tmp_path / "bench.jsonl"
    path.write_text(json.dumps(entry([100, 101, 102])))
    (figure,) = judged(path).figures
    assert figure.value is not None
    assert figure.value.has_interval
    assert figure.value.point == pytest.approx(101)


def test_repetitions_that_are_not_said_are_assumed_and_said_to_be(tmp_path: Path) -> None:
    """CSV lacks the number of repetitions: llama-bench's default, or the user's number."""
    path = tmp_path / "bench.csv"
    path.write_text(as_csv(entry()))
    assumed, given = judged(path), judged(path, Options(repetitions=20))
    widths = []
    for found in (assumed, given):
        value = found.figures[0].value
        assert value is not None
        widths.append(value.high - value.low)
    assert widths[0] > 2 * widths[1]
    assert any("n = 5, its default, is assumed" in note for note in assumed.notes)
    assert given.notes == []


def test_little_of_the_bandwidth_is_a_warning(tmp_path: Path) -> None:
    """8 GB at 15 tok/s on 800 GB/s is not bounded by memory, and the chip is in the file."""
    path = tmp_path / "bench.csv"
    path.write_text(as_csv(entry(avg_ts=15.0, avg_ns=128e9 / 15)))
    assert [guard_finding.guard for _, guard_finding in judged(path).guard_findings] == [
        "roofline-low"
    ]
    declared = judged(path, Options(hardware=find_profile("m3")))
    assert declared.guard_findings == []


@pytest.mark.parametrize(
    ("name", "profile"), [("m4max", "m4max-32"), ("auto", "m4max-32"), ("m4max-40", "m4max-40")]
)
def test_a_chips_name_means_this_machine(
    mac: Callable[[str], Machine], monkeypatch: pytest.MonkeyPatch, name: str, profile: str
) -> None:
    """On an M4 Max with 32 GPU cores its name is that chip variant; another must be named."""
    monkeypatch.setattr("pytest_asperf.audit.known.detect", lambda: mac("m4max-32"))
    hardware = parse_options(name, (), None, None, 0.9).hardware
    assert hardware is not None
    assert hardware.id == profile


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (",".join(FIELDS) + "\n", "without a test: the run measured nothing"),
        (as_csv(entry())[:-40], "1 rows with figures were not read: they are cut off"),
    ],
)
def test_a_broken_file_is_no_measurement(text: str, reason: str, tmp_path: Path) -> None:
    """An empty, truncated or impossible file raises with its fault."""
    path = tmp_path / "bench"
    path.write_text(text)
    assert reason in read_file(path).problem
