import json
import math
import threading
from dataclasses import replace
from pathlib import Path

import pytest

from pytest_asperf.engine_process import EngineFacts
from pytest_asperf.errors import CacheError
from pytest_asperf.hardware.machine import Machine
from pytest_asperf.measure.noise import Calibration, NoiseStore, SelfChecks
from pytest_asperf.measure.paired_runner import Pair

MACHINE = Machine(os="Linux", arch="x86_64", cpu_brand="test", logical_cores=2, memory_bytes=2**33)
ENGINE = EngineFacts(
    engine="llama_cpp", library="llama", version="1", ggml_commit="abc", library_sha256="f" * 64
)
FOUND = Calibration(
    "tg128",
    ENGINE.build,
    "asperf-target",
    "aa",
    spread=0.02,
    position=0.001,
    position_low=-0.002,
    position_high=0.004,
    load_sd=0.01,
    pairs=20,
    measured_on="2026-01-02",
    pair_s=0.5,
)


def test_what_is_kept_is_found_by_the_next_session(tmp_path: Path) -> None:
    """A calibration is found for its workload and engine build, on this kind of machine only."""
    NoiseStore(tmp_path, MACHINE).keep([FOUND])
    book = NoiseStore(tmp_path, MACHINE)
    assert book.find("tg128", ENGINE, "aa") == FOUND
    assert book.find("pp512", ENGINE, "aa") is None
    assert book.find("tg128", replace(ENGINE, library_sha256="e" * 64), "aa") is None
    other = replace(MACHINE, cpu_brand="another")
    assert NoiseStore(tmp_path, other).find("tg128", ENGINE, "aa") is None


def test_the_same_model_goes_before_the_latest(tmp_path: Path) -> None:
    """Another model's noise is used only if the model's own is unknown; the latest wins."""
    book = NoiseStore(tmp_path, MACHINE)
    old, new = replace(FOUND, model_sha256="bb"), replace(FOUND, model_sha256="cc")
    book.keep([FOUND, old])
    book.keep([new])
    assert book.find("tg128", ENGINE, "aa") == FOUND
    assert book.find("tg128", ENGINE, "dd") == new
    again = replace(FOUND, spread=0.05)
    book.keep([again])
    assert book.find("tg128", ENGINE, "aa") == again
    assert len(book.calibrations) == 3


def test_counts_grow_and_calibrations_stay(tmp_path: Path) -> None:
    """Gates and self-checks are added to the stored counts."""
    book = NoiseStore(tmp_path, MACHINE)
    book.keep([FOUND])
    assert [book.count_gate() for _ in range(3)] == [1, 2, 3]
    book.note_self_check(failed=False)
    book.note_self_check(failed=True)
    assert NoiseStore(tmp_path, MACHINE).self_checks == SelfChecks(2, 1)
    assert book.calibrations == (FOUND,)


def test_no_count_is_lost_between_writers(tmp_path: Path) -> None:
    """Several that count at once lose none."""
    books = [NoiseStore(tmp_path, MACHINE) for _ in range(4)]
    threads = [
        threading.Thread(target=lambda b: [b.count_gate() for _ in range(10)], args=(book,))
        for book in books
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert books[0].count_gate() == 41


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "{",
        '{"schema": 99, "self_checks": 5}',
        '{"schema": 1, "self_checks": -1, "calibrations": {"a": 1}}',
        '{"schema": 1, "calibrations": [1, {}, null, {"workload": "tg128"}]}',
    ],
)
def test_a_broken_file_counts_as_nothing_known(tmp_path: Path, text: str) -> None:
    """For any content of the file, a gate goes on, and the next results are stored."""
    book = NoiseStore(tmp_path, MACHINE)
    book.count_gate()
    (path,) = tmp_path.glob("hardware/noise-*.json")
    path.write_text(text)
    assert list(book.calibrations) == []
    assert book.self_checks == SelfChecks()
    book.keep([FOUND])
    assert list(book.calibrations) == [FOUND]


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("spread", "wide"),
        ("spread", -1),
        ("spread", 1e6),
        ("spread", 1.49),  # 720 % in 20 pairs
        ("spread", 0.28),
        ("position", 10**400),
        ("pairs", None),
        ("pair_s", None),
        ("measured_on", "soon"),
        ("model", 7),
    ],
)
def test_a_calibration_with_an_impossible_value_is_left_out(
    tmp_path: Path, key: str, value: object
) -> None:
    """A value of the wrong kind costs that calibration, not the gate."""
    book = NoiseStore(tmp_path, MACHINE)
    book.keep([FOUND])
    (path,) = tmp_path.glob("hardware/noise-*.json")
    record = json.loads(path.read_text())
    record["calibrations"][0][key] = value
    path.write_text(json.dumps(record))
    assert book.calibrations == ()


def test_a_folder_that_cannot_be_written_is_an_error_in_four_parts(tmp_path: Path) -> None:
    """The file is named, with the remedy."""
    (tmp_path / "hardware").write_text("in the way")
    with pytest.raises(CacheError, match="this machine's noise cannot be kept in") as caught:
        NoiseStore(tmp_path, MACHINE).count_gate()
    assert "ASPERF_CACHE" in caught.value.remedy


@pytest.mark.parametrize("candidate_first", [True, False])
def test_a_pair_keeps_its_runs_and_their_order(*, candidate_first: bool) -> None:
    """The ratio is the median of the run pairs' own; the order changes with every run pair."""
    pair = Pair((10, 30, 20), (40, 60, 20), candidate_first)
    assert pair.log_ratio == pytest.approx(math.log(2))
    assert pair.in_turn[candidate_first] == (10, 60, 20)
    assert pair.in_turn[not candidate_first] == (40, 30, 20)
