"""Drafted and verified tokens, by the logs and answers of llama.cpp's binaries.

Logs in files are from the shipped models. MTP heads and EAGLE drafts are not among those, so their
lines are written here as `common/speculative.cpp` and
`examples/speculative-simple/speculative-simple.cpp` of build 0c1e570 print them.
"""

import json
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_asperf.audit.log import read_log
from pytest_asperf.audit.result import Audit
from pytest_asperf.worker.printed.timings import request_of

MTP = (
    "0.01.000.000 I common_speculative_init_result: creating MTP draft context against the target "
    "model 'qwen.gguf'\n"
)
EAGLE = "0.01.000.000 I common_speculative_init_result: loading draft model 'eagle.gguf'\n"
CHECKPOINTS = (
    "0.01.000.000 I speculative decoding will use checkpoints (context does not support partial "
    "sequence removal)\n"
)


def _log(kind: str, head: str, *, drafted: int, accepted: int, lines: str = "") -> str:
    """Return a log of llama-speculative-simple at -lv 4 that emits 101 tokens."""
    return (
        f"{head}\n\nYes. {lines}\n"
        "0.02.000.000 I encoded   20 tokens in    0.075 seconds, speed:  266.667 t/s\n"
        "0.02.000.000 I decoded  101 tokens in    1.000 seconds, speed:  101.000 t/s\n"
        f"0.02.000.000 I n_draft   = 3\n0.02.000.000 I n_predict = 101\n"
        f"0.02.000.000 I n_drafted = {drafted}\n0.02.000.000 I n_accept  = {accepted}\n"
        f"0.02.000.000 I accept    = {100 * accepted / drafted:.3f}%\n\n0.02.000.000 I draft:\n\n"
        f"0.02.000.000 I spec common_specu: statistics {kind:>16}: #calls(b,g,a) =    1     40     "
        "40, #gen drafts =     40, #acc drafts =    30, #gen tokens =    120, "
        "#acc tokens =    61, #mean acc len = 2.52, #acc rate/pos = (0.750, 0.500, 0.275), "
        "dur(b,g,a) = 0.002, 7.258, 0.007 ms\n\n0.02.000.000 I target:\n\n"
    )


@pytest.mark.parametrize(("kind", "head"), [("draft-mtp", MTP), ("draft-eagle3", EAGLE)])
def test_heads_and_eagle_are_read_as_any_draft(
    kind: str, head: str, audit_of: Callable[..., Audit]
) -> None:
    """The drafter is named, and counts are the tool's if nothing is verified twice."""
    (found,) = audit_of({"log": _log(kind, head, drafted=120, accepted=61)}).files
    assert dict(found.ran)["drafts"] == kind
    figures = {figure.name: figure.text for figure in found.figures}
    assert figures["acceptance"] == "50.83% of 120 drafted tokens"
    assert figures["rounds"] == "2.52 tokens emitted in each of 40"
    assert found.notes == []


def test_what_is_verified_again_bounds_the_acceptance(audit_of: Callable[..., Audit]) -> None:
    """A hybrid prints 100 %; 61 counted with up to 30 replays are 31 to 61 of 120."""
    log = _log("draft-mtp", MTP + CHECKPOINTS, drafted=61, accepted=61)
    (found,) = audit_of({"log": log}).files
    figures = {figure.name: figure.text for figure in found.figures}
    assert figures["acceptance"] == "25.83% to 50.83% of 120 drafted tokens"
    assert "61 of 61, as it prints, is no acceptance rate; a log at -lv 5" in found.notes[0]


def test_without_statistics_nothing_is_said_of_it(audit_of: Callable[..., Audit]) -> None:
    """With checkpoints the printed share means nothing, so it is not shown."""
    lines = _log("draft-mtp", CHECKPOINTS, drafted=61, accepted=61).splitlines(keepends=True)
    text = "".join(line for line in lines if "statistics" not in line)
    (found,) = audit_of({"log": text}).files
    assert [figure.name for figure in found.figures] == ["TG", "rounds"]


def test_each_round_counts_once(
    recorded: Callable[[str], str], audit_of: Callable[..., Audit]
) -> None:
    """At -lv 5 every round is there: 47 of 61, where the tool prints 52 of 52."""
    files = {name: recorded(name) for name in (
        "speculative_checkpoints.txt", "speculative_checkpoints_debug.txt",
    )}  # fmt: skip
    rough, exact = audit_of(files).files
    assert "52 of 52" in rough.notes[0]
    shares = [f.text for found in (rough, exact) for f in found.figures if f.name == "acceptance"]
    assert shares == ["59.02% to 85.25% of 61 drafted tokens", "77.05% of 61 drafted tokens"]


def test_a_replay_is_no_round() -> None:
    """A round that went back, also more than once, counts as it was first verified."""
    rounds = (
        "def read0.00.221.757 D accepted 4/4 draft tokens, the last target token is: (1)\n"
        "0.00.224.299 D partial acceptance: 2 < 4, restoring checkpoint\n"
        "0.00.225.299 D partial acceptance: 1 < 3, restoring checkpoint\n"
        "(path)0.00.244.712 D accepted 2/2 draft tokens, the last target token is: (2)\n"
        "0.00.260.743 D accepted 0/3 draft tokens, the last target token is: (3)\n"
    )
    log = read_log((_log("draft-mtp", CHECKPOINTS, drafted=9, accepted=9) + rounds).splitlines())
    ((run, _),) = log.speculations
    assert run.verified == (6, 11)


@pytest.mark.parametrize(("accepted", "says"), [(61, ""), (90, "counted 90 accepted of 120")])
def test_two_reports_of_a_log_must_agree(accepted: int, says: str) -> None:
    """The program's own count of accepted tokens is that of its drafters' statistics."""
    log = read_log(_log("draft-simple", "", drafted=120, accepted=accepted).splitlines())
    ((run, _),) = log.speculations
    assert run.own_contradiction.startswith(says)
    assert bool(run.own_contradiction) == bool(says)


def test_lookup_and_draft_are_told_apart(
    recorded: Callable[[str], str], audit_of: Callable[..., Audit]
) -> None:
    """Two ways of drafting in one run have an acceptance each, in addition to that of both."""
    (found,) = audit_of({"log": recorded("speculative_draft_and_lookup.txt")}).files
    assert dict(found.ran)["drafts"] == "ngram-simple, draft-simple"
    figures = {figure.name: figure.text for figure in found.figures}
    assert figures["acceptance"] == "71.43% of 77 drafted tokens"
    assert figures["acceptance, ngram-simple"] == "68.12% of 69 drafted tokens"
    assert figures["acceptance, draft-simple"] == "100.00% of 8 drafted tokens"


def test_a_servers_requests_count_first_verifications(
    recorded: Callable[[str], str], audit_of: Callable[..., Audit]
) -> None:
    """Its requests leave replays out; its statistics, 98 of 143, do not and are not shown."""
    (found,) = audit_of({"log": recorded("server_checkpoints.txt")}).files
    assert dict(found.ran)["drafts"] == "draft-simple"
    shares = [figure.text for figure in found.figures if figure.name.startswith("acceptance")]
    assert shares == ["53.15% of 143 drafted tokens"]


def test_acceptance_that_was_drawn_is_invalid(audit_of: Callable[..., Audit]) -> None:
    """A tool's synthetic acceptance makes rates of nothing that a model wrote."""
    warning = (
        "0.00.100.000 W spec common_specu: synthetic speculative acceptance is enabled for "
        "benchmarking; generated output is not valid\n"
    )
    log = _log("draft-mtp", MTP + warning, drafted=120, accepted=61)
    (found,) = audit_of({"log": log}).files
    assert [guard_finding.guard for _, guard_finding in found.guard_findings] == ["path-mismatch"]
    assert "drawn at random ran" in found.guard_findings[0][1].found


def test_a_servers_answers_are_requests(
    recorded: Callable[[str], str], audit_of: Callable[..., Audit]
) -> None:
    """Answers on lines, one answer, and one that was streamed are all read."""
    lines = recorded("server_answers.jsonl")
    one = json.loads(lines.splitlines()[0])
    part = {"choices": [{"finish_reason": None}], "timings": {**one["timings"], "predicted_n": 7}}
    last = {"choices": [{"finish_reason": "length"}], "timings": one["timings"]}
    stream = "".join(f"data: {json.dumps(chunk)}\n\n" for chunk in (part, last))
    files = {"lines": lines, "one": json.dumps(one), "stream": stream + "data: [DONE]\n"}
    found = dict(zip(files, audit_of(files).files, strict=True))
    shares = {
        name: next(figure.text for figure in of.figures if figure.name == "acceptance")
        for name, of in found.items()
    }
    assert shares["lines"] == "49.38% of 162 drafted tokens"
    assert shares["one"] == shares["stream"] == "46.30% of 54 drafted tokens"


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner),
    max_leaves=5,
)
KEYS = ("prompt_n", "prompt_ms", "predicted_n", "predicted_ms", "draft_n", "draft_n_accepted")


@given(st.fixed_dictionaries(dict.fromkeys(KEYS, JSON)), JSON, JSON)
def test_no_answer_is_an_error_of_ours(timings: object, stop: object, choices: object) -> None:
    """For any JSON instead of a figure, it is a request of possible counts or none."""
    for answer in ({"timings": timings, "stop": stop, "choices": choices}, timings, stop):
        found = request_of(answer)
        assert found is None or 0 <= found[1].n_accepted <= found[1].n_drafted
    whole = request_of({"timings": timings, "stop": True})
    assert whole is None or whole[1].generated.n_tokens >= 0
