"""`asperf history` and `asperf gate --store`."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from pytest_asperf.commands.history_lines import machine_names
from pytest_asperf.store import open_store
from pytest_asperf.store.figures import Origin
from tests.commands.conftest import Ended, ScriptedCommand
from tests.store.documents import drifting, gated, night, rate

RunAsperf = Callable[..., Ended]


@pytest.fixture
def nights(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Six runs, the last two of another build, in `h.db` of the working folder."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("ASPERF_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("TZ", "UTC")
    with open_store("h.db") as store:
        for number in range(4):
            store.record(drifting(number), is_live=False)
        for number in (4, 5):
            row = rate(90 + number, version="2")
            store.record(night(row, gated(1.25), number=number), is_live=False)
    return tmp_path / "h.db"


def _run(run_asperf: RunAsperf, *words: str) -> str:
    done = run_asperf("history", "--store", "h.db", *words)
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


def test_the_series_are_listed(nights: Path, run_asperf: RunAsperf) -> None:
    """Each has its last value; a log ratio is shown as the ratio of times that it is."""
    lines = _run(run_asperf).splitlines()
    cells = {line.split("  ")[0].strip(): line.split() for line in lines}
    assert cells["tg128 m"][3:7] == ["6", "95.00", "tok/s", "[94.05,"]
    assert cells["tg128 ratio m"][4:6] == ["2", "1.250"]
    assert f"{nights}: 4 series of 1 machine, 6 sessions, the last on" in lines[-1]


def test_a_series_is_drawn_with_what_changed(nights: Path, run_asperf: RunAsperf) -> None:
    """Above the first run of another build are both builds."""
    with open_store(str(nights)) as store:
        (series,) = (one.id for one in store.series() if one.key.metric == "tg128")
    lines = _run(run_asperf, "show", series[:6]).splitlines()
    assert lines[0] == "tg128 m, llama_cpp, on mini, 6 points"
    drawn = [line for line in lines if "tok/s" in line]
    assert len(drawn) == 6
    assert all("o" in line[38:] for line in drawn)
    change = next(line for line in lines if "->" in line)
    assert change.split("build: ")[1].startswith("lib 1, ggml commit abc")
    assert lines.index(change) == lines.index(drawn[4]) - 1
    few = _run(run_asperf, "show", series, "--last", "2").splitlines()
    assert [line for line in few if "tok/s" in line] == few[-2:]


def test_what_is_exported_can_be_imported(nights: Path, run_asperf: RunAsperf) -> None:
    """Another store has equal content afterwards, and importing again adds nothing."""
    assert "wrote 6 sessions to all.jsonl" in _run(run_asperf, "export", "all.jsonl")
    done = run_asperf("history", "--store", "other.db", "import", "all.jsonl")
    assert "stored 6 sessions with 12 figures, 0 were stored before" in done.stdout
    again = run_asperf("history", "--store", "other.db", "import", "all.jsonl")
    assert "stored 0 sessions with 0 figures, 6 were stored before" in again.stdout
    with open_store(str(nights)) as one, open_store("other.db") as other:
        assert one.series() == other.series()
        assert one.sessions() == other.sessions()
        first = one.sessions()[0].id
        wanted = one.document(first)
    _run(run_asperf, "export", "one.json", "--session", first[:9])
    assert json.loads(Path("one.json").read_text("utf-8")) == wanted


def test_prune_counts_before_it_removes(nights: Path, run_asperf: RunAsperf) -> None:
    """Without --yes nothing is removed; documents can go before the points."""
    says = _run(run_asperf, "prune", "--older-than", "0")
    assert "6 sessions would be removed; --yes removes them" in says
    _run(run_asperf, "prune", "--older-than", "0", "--only-documents", "--yes")
    assert "wrote 0 sessions to x.jsonl; 6 had no document any more" in _run(
        run_asperf, "export", "x.jsonl"
    )
    assert "removed 6 sessions" in _run(run_asperf, "prune", "--older-than", "0", "--yes")
    assert "0 series of 0 machines, 0 sessions" in _run(run_asperf)
    assert nights.exists()


def test_machines_of_one_name_are_told_apart() -> None:
    """Behind a name that two machines share is the beginning of the fingerprint."""
    origins = [
        Origin(id_, host, "m4", "1") for id_, host in (("a1", "x"), ("b2", "x"), ("c3", "y"))
    ]
    assert machine_names(origins) == {"a1": "x (a1)", "b2": "x (b2)", "c3": "y"}


def test_sessions_are_listed(nights: Path, run_asperf: RunAsperf) -> None:
    """By their ids, of one kind if that is named."""
    lines = _run(run_asperf, "sessions").splitlines()
    with open_store(str(nights)) as store:
        ids = [one.id[:8] for one in store.sessions()]
    assert [line.split()[0] for line in lines[1:7]] == ids
    assert len(_run(run_asperf, "sessions", "--kind", "gate").split()) == len(lines[0].split())


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("list",), "no history is named"),
        (("--store", "no.db", "list"), "there is no store at "),
        (("--store", "h.db", "show", "zz"), "0 series of "),
        (("show", "zz", "--store", "h.db"), "Write --store before `show`"),
        (("--store", "h.db", "import", "no.json"), "no.json cannot be read: No such file"),
        (("--store", "h.db", "import", "h.db"), "h.db is not JSON: "),
        (("--store", "new.db", "import", "bad.json"), "bad.json has schema None, and this version"),
        (("--store", "new.db", "import", "old.jsonl"), "old.jsonl, line 2 has schema 2, and this"),
        (("--store", "h.db", "export", "no/x"), "cannot write no/x: No such file"),
    ],
)
def test_what_cannot_be_done_is_said(
    words: tuple[str, ...],
    says: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    run_asperf: RunAsperf,
) -> None:
    """The error names the file or the series, and no store is made for a bad file."""
    monkeypatch.chdir(tmp_path)
    open_store("h.db").__exit__(None, None, None)
    (tmp_path / "bad.json").write_text('{"rows": []}')
    lines = (json.dumps({"document": night() | {"schema": n}}) for n in (3, 2))
    (tmp_path / "old.jsonl").write_text("\n".join(lines))
    done = run_asperf("history", *words)
    assert done.returncode == 3
    assert says in done.stderr
    assert not (tmp_path / "new.db").exists()


def test_a_gate_is_stored(scripted_command: ScriptedCommand) -> None:
    """Each timed check gives the log ratio and both rates; a check of PPL gives its log ratio."""
    gate = scripted_command("gate", settings='store = "h.db"\nchunks = 6\nseed = 1\n')
    done = gate("current", "current", "--workload", "tg32,ppl,logits")
    assert done.exit_code == 0, done.output
    assert "stored 4 figures in " in done.output
    with open_store("h.db") as store:
        found = {one.key.metric: (one.key, store.points(one.id)) for one in store.series()}
        (session,) = store.sessions()
    assert sorted(found) == ["ppl ratio", "tg32 baseline", "tg32 candidate", "tg32 ratio"]
    key, (point,) = found["tg32 ratio"]
    assert (session.kind, key.anchor[:10], point.outcome) == ("gate", "scripted 1", "PASS")
    assert abs(point.value) < 0.05
