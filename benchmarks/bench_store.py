"""A store under eight writers that are killed at random, and one with a million points.

Run it as ``python benchmarks/bench_store.py``: five minutes of writers, then the million. It prints
Markdown and exits with 1 if a writer's confirmed report is not there, if one is there in part, or
if listing or drawing takes longer than 2 s. ``--store`` names a PostgreSQL server instead of a
file; the content of its tables of the store is removed.
"""

from __future__ import annotations

import argparse
import os
import random
import signal
import sys
import tempfile
import time
from collections import Counter
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import psycopg
import sqlalchemy as sa

from pytest_asperf.records.report import SCHEMA
from pytest_asperf.store import database as schema
from pytest_asperf.store import open_store
from pytest_asperf.store.database import open_database
from pytest_asperf.store.figures import document_digest

if TYPE_CHECKING:
    from multiprocessing.process import BaseProcess

#: Figures of a report, and bytes of its raw text: a night of a few gates.
FIGURES: Final = 20
RAW_BYTES: Final = 40_000
LONGEST_S: Final = 2.0
_CONTEXT: Final = get_context("fork")  # a new writer then imports nothing
_FIRST: Final = 1_790_000_000
_DAY_S: Final = 86_400
_KEY: Final = {
    "machine": "aaaaaaaaaaaa",
    "engine": "llama_cpp",
    "model": "m",
    "model_sha256": "sha",
    "settings": "{}",
    "unit": "tok/s",
    "anchor": "",
}


@dataclass(frozen=True, slots=True)
class Tally:
    """The fate of the reports.

    Attributes:
        told: confirmed as stored, before the writer was killed or ended.
        stored: that are in the store; more, where the kill came between the two.
        lost: confirmed and not there.
        partial: whose figures or document are not all there.
    """

    kills: int
    told: int
    stored: int
    lost: int
    partial: int


def report(writer: int, number: int) -> dict[str, Any]:
    """A report that no other writer has."""
    named = dict.fromkeys(("model", "spec", "name"), "m")
    build = {"engine": "llama_cpp", "library": "lib", "version": "1", "libraries": "lib 1"}
    ran = {**named, **build, "sha256": "sha"}
    rows = []
    for n in range(FIGURES):
        value = {"point": 100.0 + writer + number / 1e6, "low": 99.0, "high": 1e6, "n": 10}
        estimate = {**value, "unit": "tok/s", "method": ""}
        measured = {"kind": "throughput", "workload": f"tg{n + 1}", "estimate": estimate}
        rows.append({"test": f"test_{n}", "ran": ran, **measured})
    machine = {"id": f"writer{writer % 4}", "hardware": "m4", "os": "macOS", "gpus": []}
    began = time.strftime("%Y-%m-%dT%H:%M:%S+00:00", time.gmtime(_FIRST + number))
    meta: dict[str, Any] = {"version": "0.1.0", "time": began, "host": "mini", "machine": machine}
    meta["seed"] = writer * 10**9 + number
    head = {"schema": SCHEMA, "meta": meta, "headline": []}
    return {**head, "rows": rows, "padding": "x" * RAW_BYTES}


def write(address: str, writer: int, told: Path) -> None:
    """Store reports until killed, and note each once it is confirmed."""
    notes = os.open(told, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    with open_store(address, wait_s=60) as store:
        number = 0
        while True:
            number += 1
            recorded = store.record(report(writer, number))
            os.write(notes, f"{recorded.session}\n".encode())


def hammer(
    address: str, folder: Path, *, seconds: float, writers: int, seed: int, most_kills: int = 0
) -> Tally:
    """Have writers store reports, and kill one after the other at random moments.

    With `most_kills` it ends after so many, each of which waits for one more report.
    """
    draw = random.Random(seed)  # noqa: S311  # moments, and no secrets
    files: list[Path] = []
    open_store(str(folder / "warm.db")).__exit__(None, None, None)  # the imports that writers need

    def begin() -> BaseProcess:
        files.append(folder / f"told-{len(files)}")
        process = _CONTEXT.Process(target=write, args=(address, len(files), files[-1]))
        process.start()
        return process

    running = [begin() for _ in range(writers)]
    kills = 0
    end = time.monotonic() + seconds
    while time.monotonic() < end and (not most_kills or kills < most_kills):
        before = _size(files)
        time.sleep(draw.uniform(0, 0.5))
        while most_kills and _size(files) == before and time.monotonic() < end:
            time.sleep(0.01)
        killed = running.pop(draw.randrange(writers))
        kills += _kill(killed)
        running.append(begin())
    for process in running:
        kills += _kill(process)
    told = {line for path in files if path.exists() for line in path.read_text().split("\n")[:-1]}
    return _checked(address, told, kills)


def _size(files: list[Path]) -> int:
    return sum(path.stat().st_size for path in files if path.exists())


def _kill(process: BaseProcess) -> bool:
    if process.pid is None:
        return False
    os.kill(process.pid, signal.SIGKILL)
    process.join()
    return process.exitcode == -signal.SIGKILL


def _checked(address: str, told: set[str], kills: int) -> Tally:
    with open_store(address, create=False) as store:
        ids = [one.id for one in store.sessions()]
        partial = sum(document_digest(store.document(one)) != one for one in ids)
    database = open_database(address, create=False, wait_s=30)
    with database.reading() as connection:
        counts = Counter(connection.scalars(sa.select(schema.points.c.session)))
        if connection.dialect.name == "sqlite":
            assert connection.exec_driver_sql("PRAGMA integrity_check").scalar() == "ok"
    database.close()
    partial += sum(counts[one] != FIGURES for one in ids) + len(counts.keys() - set(ids))
    return Tally(kills, len(told), len(ids), len(told - set(ids)), partial)


def fill(address: str, n_series: int, n_nights: int) -> None:
    """Store many points without documents, which would need an hour."""
    open_store(address).__exit__(None, None, None)
    database = open_database(address, create=False, wait_s=30)
    with database.writing() as connection:
        for n in range(n_nights):
            session = {
                "id": f"{n:032}",
                "kind": "nightly",
                "time": _FIRST + n * _DAY_S,
                "stored_at": _FIRST + n * _DAY_S,
                "clock_back_s": 0.0,
                "document": "",
                "machine": "aaaaaaaaaaaa",
                "host": "mini",
                "hardware": "m4",
                "version": "1",
            }
            connection.execute(schema.sessions.insert(), [session])
        names = [{"id": f"{s:010}", "metric": f"tg{s}", **_KEY} for s in range(n_series)]
        connection.execute(schema.series.insert(), names)
        draw = random.Random(1)  # noqa: S311
        for s in range(n_series):
            rows = [_point(s, n, draw.gauss(100, 2)) for n in range(n_nights)]
            connection.execute(schema.points.insert(), rows)
    database.close()
    if "://" in address:  # a server does this by itself, within a minute
        with psycopg.connect(address, autocommit=True) as connection:
            connection.execute("VACUUM ANALYZE")


def _point(s: int, n: int, value: float) -> dict[str, object]:
    build = '[["build", "lib 1, ggml commit abc, libraries sha256 111111111111"]]'
    return {
        "series": f"{s:010}",
        "session": f"{n:032}",
        "row": s,
        "time": _FIRST + n * _DAY_S,
        "value": value,
        "low": value - 1,
        "high": value + 1,
        "n": 30,
        "outcome": "PASS",
        "test": f"tg{s} m",
        "provenance": build,
    }


def timed(address: str) -> list[tuple[str, float]]:
    """Seconds of the work of `asperf history`, with the libraries loaded."""
    from pytest_asperf.commands.history import with_state
    from pytest_asperf.commands.history_lines import drawn, machine_names, series_rows
    from pytest_asperf.nightly.steps import threshold_of

    times = []
    with open_store(address, create=False) as store:
        began = time.perf_counter()
        known = store.series()
        threshold = threshold_of(known)
        rows = [with_state(store, one, threshold) for one in known[:40]]
        series_rows(rows, machine_names(store.sessions()))
        times.append((f"list {len(known)} series, 40 with states", time.perf_counter() - began))
        began = time.perf_counter()
        list(drawn(store.points(known[0].id), "tok/s", 80))
        times.append(("read and draw one series", time.perf_counter() - began))
        began = time.perf_counter()
        store.record(report(1, 1))
        times.append((f"store a report of {FIGURES} figures", time.perf_counter() - began))
    return times


def empty(address: str) -> None:
    """Remove a server's store."""
    with open_store(address) as store:
        store.prune(float("inf"))


def main() -> int:
    """Run both, and print their results."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0] if __doc__ else "")
    parser.add_argument("--seconds", type=float, default=300)
    parser.add_argument("--kills", type=int, default=0, help="stop after so many")
    parser.add_argument("--writers", type=int, default=8)
    parser.add_argument("--series", type=int, default=2740, help="of 365 nights; 0 leaves it out")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--store", help="postgresql://...; a file of its own by default")
    asked = parser.parse_args()
    failed = False
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        address = asked.store or str(folder / "writers.db")
        if asked.store:
            empty(address)
        tally = hammer(
            address,
            folder,
            seconds=asked.seconds,
            writers=asked.writers,
            seed=asked.seed,
            most_kills=asked.kills,
        )
        print("| seconds | writers | killed | told as stored | in the store | lost | in part |")
        print("| --- | --- | --- | --- | --- | --- | --- |")
        print(
            f"| {asked.seconds:g} | {asked.writers} | {tally.kills} | {tally.told} "
            f"| {tally.stored} | {tally.lost} | {tally.partial} |"
        )
        failed |= bool(tally.lost or tally.partial or not tally.told)
        if asked.series:
            address = asked.store or str(folder / "million.db")
            if asked.store:
                empty(address)
            fill(address, asked.series, 365)
            print(f"\n| {asked.series * 365} points | seconds |\n| --- | --- |")
            for what, seconds in timed(address):
                print(f"| {what} | {seconds:.2f} |")
                failed |= seconds > LONGEST_S
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
