"""`asperf nightly`: runs of the scripted engine, stored in a real store."""

import copy
import datetime as dt
import json
import math
import random
import re
import sqlite3
import sys
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from filelock import FileLock
from jsonschema import Draft202012Validator

from pytest_asperf.nightly.record import mark_path
from pytest_asperf.store import open_store
from tests.commands.conftest import Command, ScriptedCommand
from tests.report.sample_reports import SCHEMA

_WORDS = ("--workload", "tg32", "--pairs", "5", "--name", "job")


def _build(folder: Path, name: str, version: str, cost: float) -> None:
    """An interpreter whose engine has a version, and is `cost` times as slow."""
    variables = f"ASPERF_SCRIPT_VERSION={version} ASPERF_SCRIPT_COST={cost}"
    path = folder / name
    path.write_text(f'#!/bin/sh\n{variables} exec {sys.executable} "$@"\n')
    path.chmod(0o755)


@pytest.fixture
def nightly(scripted_command: ScriptedCommand, tmp_path: Path) -> Command:
    """The command, in a project with an old build, the fixed baseline, and a watched build."""
    builds = "".join(f'[builds.{name}]\npython = "./{name}"\n' for name in ("old", "watched"))
    _build(tmp_path, "old", "1", 1.0)
    _build(tmp_path, "watched", "1", 1.0)
    command = scripted_command("nightly", settings='store = "h.db"\nchunks = 6\n')
    path = tmp_path / "asperf.toml"
    path.write_text(path.read_text() + builds)
    command.script(tg_ns_per_token=1_000_000, spread=0.002)
    return command


def _stored(kind: str = "nightly") -> list[dict[str, Any]]:
    with open_store("h.db") as store:
        return [store.document(session.id) for session in store.sessions(kind=kind)]


def _earlier(document: dict[str, Any], days: int, ratio: float = 1.0) -> None:
    """Store a run like another one, some days before it."""
    night = copy.deepcopy(document)
    began = dt.datetime.fromisoformat(night["meta"]["time"]) - dt.timedelta(days=days)
    night["meta"]["time"] = began.isoformat()
    figure = night["rows"][0]["figures"][0]["estimate"]
    figure.update(point=ratio, low=ratio * 0.99, high=ratio * 1.01)
    with open_store("h.db") as store:
        store.record(night, kind="nightly", is_live=False)


def _replace_by_earlier(days: int) -> dict[str, Any]:
    """Move the one stored run back by some days."""
    (document,) = _stored()
    with open_store("h.db") as store:
        store.prune(math.inf)
    _earlier(document, days)
    return document


def test_nothing_new_is_recorded_and_a_changed_build_is_gated(nightly: Command) -> None:
    """A run reports that nothing changed, or gates tonight's build against the last run's."""
    first = nightly("old", "watched", *_WORDS)
    assert first.exit_code == 0, first.output
    assert "engines run at nice" in first.stderr
    assert "first run, nothing got slower" in first.stdout
    _replace_by_earlier(1)
    done = nightly("old", "watched", *_WORDS)
    assert done.exit_code == 0, done.output
    assert done.stdout.splitlines()[0].endswith(": nothing changed")
    assert "tg32 ratio fake:F16" in done.stdout
    assert "2 of 10 runs" in done.stdout
    Draft202012Validator(SCHEMA).validate(_stored()[-1])
    before, night = (document["nightly"] for document in _stored())
    assert (night["changes"], night["missed"], night["unfinished"]) == ([], 0, "")
    assert night["facts"] == before["facts"]
    assert night["facts"]["build"].startswith("scripted 1, ")
    _build(nightly.folder, "watched", "2", 1.3)
    done = nightly("old", "watched", *_WORDS)
    assert done.exit_code == 1, done.output
    assert "the gate of the change is FAIL: watched against old" in done.stdout
    assert "changed: build: scripted 1, " in done.stdout
    assert re.search(r"^FAIL +tg32 fake:F16  .* tok/s, \+(2|3)\d", done.stdout, re.MULTILINE)
    assert len(_stored("gate")) == 1


def test_a_changed_build_is_gated_against_that_of_last_night(nightly: Command) -> None:
    """The fixed baseline may be an old build; a build without a name is not gated."""
    _build(nightly.folder, "watched", "2", 1.3)
    nightly("old", "watched", *_WORDS)
    document = _replace_by_earlier(1)
    _build(nightly.folder, "watched", "3", 1.3)
    done = nightly("old", "watched", *_WORDS)
    assert done.exit_code == 0, done.output
    assert "not gated: the build of the last run was named watched too, and is gone" in done.stdout
    with open_store("h.db") as store:
        store.prune(math.inf)
    document["nightly"]["build"] = "no-such-build"
    _earlier(document, 1)
    done = nightly("old", "watched", *_WORDS)
    assert done.exit_code == 4, done.output
    assert "the changed build was not gated" in done.stdout
    assert "not gated: BASE: unknown build 'no-such-build'" in done.stdout
    assert "tg32 ratio fake:F16" in done.stdout
    with open_store("h.db") as store:
        store.prune(math.inf)
    document["nightly"]["build"] = "old,slow_by=0.3"
    _earlier(document, 1)
    done = nightly("old", "watched", *_WORDS)
    assert done.exit_code == 0, done.output
    assert "the gate of the change is PASS: watched against old,slow_by=0.3" in done.stdout
    assert len(_stored("gate")) == 1


def test_a_step_is_found_in_its_second_night(nightly: Command) -> None:
    """A slowdown that no gate looks for shows in the series, and its confirmation is offered."""
    _build(nightly.folder, "watched", "1", 1.05)
    nightly("old", "watched", *_WORDS)
    document = _replace_by_earlier(1)
    with open_store("h.db") as store:
        store.prune(math.inf)
    draw = random.Random(1)  # noqa: S311
    for days in range(2, 22):
        _earlier(document, days, math.exp(draw.gauss(0, 0.005)))
    _earlier(document, 1, 1.05)
    done = nightly("old", "watched", *_WORDS)
    assert done.exit_code == 1, done.output
    assert "nothing changed, tg32 ratio fake:F16 is 4." in done.stdout.splitlines()[0]
    assert "slower since" in done.stdout
    assert "to confirm: asperf history confirm " in done.stdout


def test_nights_that_are_missing_or_broken_are_said_and_notified(nightly: Command) -> None:
    """The user's command gets the summary, and an unmeasured check is no pass."""
    nightly("old", "watched", *_WORDS)
    _replace_by_earlier(4)
    mark = mark_path(nightly.folder / "cache", "job")
    mark.write_text(json.dumps({"began": 1.7e9}))
    said = nightly.folder / "said.txt"
    (nightly.folder / "tell.sh").write_text('#!/bin/sh\ncat > "$1"\n')
    (nightly.folder / "tell.sh").chmod(0o755)
    done = nightly("old", "watched", *_WORDS, "--notify", f"./tell.sh '{said}'")
    assert done.exit_code == 0, done.output
    assert "3 runs missing: the last one was measured at " in done.stdout
    assert "the nightly run of 2023-11-1" in done.stdout
    assert "was interrupted" in done.stdout
    assert said.read_text() == done.stdout
    assert not mark.exists()
    assert _stored()[-1]["nightly"]["missed"] == 3
    nightly.script(faults={"generate": "crash"})
    done = nightly("old", "watched", *_WORDS, "--notify", "no-such-program")
    assert done.exit_code == 4, done.output
    assert "only 0 of 1 checks were measured" in done.stdout
    assert "not notified: no-such-program: No such file" in done.stderr
    assert len(_stored()) == 3


def test_a_night_of_an_earlier_schema_is_said_and_kept(nightly: Command) -> None:
    """The run is measured without it; its figures, which the store has, go on with their series."""
    nightly("old", "watched", *_WORDS)
    _replace_by_earlier(1)
    earlier = json.dumps(_stored()[0] | {"schema": 2})
    with closing(sqlite3.connect("h.db")) as database, database:
        database.execute("UPDATE asperf_session SET document = ?", (earlier,))
    done = nightly("old", "watched", *_WORDS)
    assert done.exit_code == 0, done.output
    assert ": first run that can be read, nothing got slower" in done.stdout
    assert "not compared with 1 earlier run of the store: session " in done.stdout
    assert "has schema 2, and this version reads schema 3" in done.stdout
    assert "2 of 10 runs" in done.stdout
    assert json.dumps(_stored()[0]) == earlier
    assert "first run" not in nightly("old", "watched", *_WORDS).stdout


def test_two_at_once_are_refused(nightly: Command) -> None:
    """The second ends at once, and leaves no mark."""
    mark = mark_path(nightly.folder / "cache", "job")
    mark.parent.mkdir(parents=True)
    with FileLock(mark.with_suffix(".lock")):
        done = nightly("old", "watched", *_WORDS)
    assert done.exit_code == 4, done.output
    assert "the job job is running already" in done.stderr
    assert not mark.exists()


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (
            ("old", "watched", "--notify", "'x"),
            "--notify: 'x is not a command: No closing quotation",
        ),
        ((), "BASE is missing: no build that stays the same"),
        (("old", "wached"), "CURRENT: unknown build 'wached'; did you mean 'watched'?"),
        (("old", "newest"), "BASE: old is not a release of one package"),
        (("old", "watched", "--pairs", "2"), "'--pairs'"),
    ],
)
def test_what_cannot_be_done_is_said(nightly: Command, words: tuple[str, ...], says: str) -> None:
    """The exit code is that of a command that is not usable as typed."""
    done = nightly(*words)
    assert done.exit_code == 3, done.output
    assert says in done.output
