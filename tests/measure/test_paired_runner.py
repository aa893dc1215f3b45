"""Two variants in pairs: processes, lengths of pairs, parts of runs, orders and warm-ups."""

import math
import random
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial
from types import SimpleNamespace
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_asperf.config.workload import Workload, WorkloadKind, parse_workload
from pytest_asperf.measure import paired_runner
from pytest_asperf.measure.paired_runner import OpenArms, Pair, PairedRunner, PairLength
from pytest_asperf.measure.running_arms import TimedArm, most_parts

TG, PP = Workload("tg", 128), Workload("pp", 512)


@pytest.mark.parametrize(
    ("workload", "parts"),
    [(TG, 16), (PP, 1), (Workload("tg", 12), 1), (Workload("tg", 127), 1), (Workload("tg", 36), 4)],
)
def test_a_generation_is_divided_evenly(workload: Workload, parts: int) -> None:
    """A part has eight tokens or more, and all have as many."""
    assert most_parts(workload) == parts


@pytest.mark.parametrize(
    ("run_ms", "divisible_into", "length"),
    [
        (5_000, 16, PairLength(16, 3, 2)),  # parts of 312 ms
        (300, 16, PairLength(16, 5, 27)),  # parts of 19 ms
        (60, 16, PairLength(8, 13, 67)),  # parts of 7.5 ms
        (10, 16, PairLength(1, 10, 50)),
        (1, 16, PairLength(1, 25, 100)),
        (150, 1, PairLength(1, 3, 3)),
        (900, 1, PairLength(1, 1)),
        (5_000, 1, PairLength(1, 1, warms_up=False)),
        (20_000, 16, PairLength(16, 3, 0, warms_up=False)),  # parts of 1.25 s
    ],
)
def test_a_pair_is_as_short_as_its_runs_allow(
    run_ms: float, divisible_into: int, length: PairLength
) -> None:
    """Runs of 0.1 s in all: three or more, in parts of 7 ms or more; a long one without parts."""
    assert PairLength.of(1e6 * run_ms, divisible_into) == length


def test_a_tail_takes_as_many_requests_as_show_it() -> None:
    """Twenty prompts for a p95, five bursts of four users, and a hundred prompts for a p99."""
    long = PairLength(1, 1)
    names = {"ttft512@p95": 20, "ttft512@c4@p95": 5, "ttft512@p99": 100, "itl128@p95": 1}
    for name, turns in names.items():
        workload = parse_workload(name, where="test", any_cost=True)
        assert long.showing(workload).turns_after([], 0.05) == turns


@given(st.floats(1e4, 1e11), st.integers(1, 16), st.floats(0, 1))
def test_the_first_pair_is_the_shortest(run_ns: float, divisible_into: int, spread: float) -> None:
    """It has 25 run pairs or fewer; others have 0.5 s of runs, and 100 run pairs, at most."""
    length = PairLength.of(run_ns, divisible_into)
    assert divisible_into % length.parts == 0
    first = length.turns_after([], 0.05)
    assert 1 <= first <= 25
    later = length.turns_after([_pair(spread)], 0.05)
    assert first <= later <= max(first, min(100, 0.5 + 5e8 * length.parts / run_ns))


def test_a_pair_is_as_long_as_the_spread_of_run_pairs_needs() -> None:
    """Its median is to err by 3 % at a tolerance of 5 %, whatever pairs differ by."""
    length = PairLength.of(3e8, 16)
    assert length.turns_after([_pair(0.02)] * 6, 0.05) == length.turns == 5
    assert length.turns_after([_pair(0.08)] * 6, 0.05) == 12
    assert length.turns_after([_pair(0.08), _pair(0.08, 5.0)], 0.05) == 12
    assert length.turns_after([_pair(0.08)] * 6, 0.02) == length.most_turns == 27
    assert length.turns_after([_pair(0.08), *[_pair(0.0)] * 5], 0.05) == 5, "the last five pairs"


def _pair(spread: float, ratio: float = 1.0) -> Pair:
    """Return a pair of three run pairs whose log ratios have this standard deviation."""
    candidate = [round(1e9 * ratio * math.exp(spread * step)) for step in (-1, 0, 1)]
    return Pair((1_000_000_000,) * 3, tuple(candidate), candidate_first=False)


@dataclass(eq=False)
class FakeArm:
    """A variant whose runs all have one duration.

    Attributes:
        name: of the variant.
        run_ms: duration of a run.
        log: its requests, in order.
        loads_each_run: whether each run has a load of its own.
        layers_offloaded: layers on a GPU.
        served: for a server, its kind.
        url: of a server that asperf did not start.
        worker: notes the cores that it is confined to.
    """

    name: str
    run_ms: float
    log: list[tuple[str, object]]
    loads_each_run: bool = False
    layers_offloaded: int = 1
    served: str | None = None
    url: str | None = None
    is_divisible = TimedArm.is_divisible
    most_parts = TimedArm.most_parts
    loaded: SimpleNamespace = field(init=False)
    worker: SimpleNamespace = field(init=False)

    def __post_init__(self) -> None:
        self.log.append((self.name, "open"))
        self.loaded = SimpleNamespace(
            loads_each_run=self.loads_each_run,
            layers_offloaded=self.layers_offloaded,
            served=self.served,
            threads=2,
            size_bytes=1,
        )
        build = SimpleNamespace(url=self.url)
        self.worker = SimpleNamespace(confine=self._confine, build=build)

    def __exit__(self, *_: object) -> None:
        self.log.append((self.name, "end"))

    def _confine(self, cores: tuple[int, ...]) -> None:
        self.log.append((self.name, ("cores", len(cores))))

    def own(self, workload: Workload) -> Workload:
        """Equal in both variants."""
        return workload

    def run(self, workload: Workload, turn: int, parts: int) -> SimpleNamespace:
        """Note each run."""
        self.log.append((self.name, (workload.kind, turn % parts, parts)))
        elapsed_ns = round(1e6 * self.run_ms / parts)
        context = SimpleNamespace()
        n_tokens = workload.n_tokens // parts
        return SimpleNamespace(elapsed_ns=elapsed_ns, n_tokens=n_tokens, context=context)

    @property
    def is_kept(self) -> bool:
        """True if the server is not ours to start."""
        return bool(self.url)

    @property
    def variants(self) -> tuple["FakeArm"]:
        """One in each process."""
        return (self,)

    def end_turn(self, turn: int) -> None:
        """Nothing."""

    def warm_up(self, workload: Workload, turn: int, parts: int) -> None:
        """Run it."""
        self.run(workload, turn, parts)

    def examine_last(
        self,
        coin: random.Random,  # noqa: ARG002  # it shows nothing
        parts: int,
    ) -> None:
        """Note after which run it is."""
        self.log.append((self.name, "examined whole" if parts > 1 else "examined"))

    def settle(self, workload: Workload, turn: int, parts: int) -> None:
        """Note before which run it is."""
        self.log.append((self.name, ("before", workload.kind, turn % parts)))


def test_a_cost_is_that_of_a_token() -> None:
    """Two variants with different numbers of tokens are compared by the time of one."""
    pair = Pair((100, 110, 120), (300, 330, 360), candidate_first=True, n_tokens=(8, 12))
    assert pair.log_ratio == pytest.approx(math.log(2))
    assert pair.total_log_ratio == pytest.approx(math.log(2))


def test_a_time_is_that_of_a_token_or_of_a_whole_prompt() -> None:
    """A rate counts the tokens of all users, a token's time those of one, a prompt none."""
    tg, pp = Workload("tg", 8, users=2), Workload("pp", 8)
    token, prompt = replace(tg, timed=True), replace(pp, timed=True)
    counted = {w: w.n_compared(16) for w in (tg, token, Workload("itl", 8, users=2), pp, prompt)}
    assert list(counted.values()) == [16, 8, 8, 16, 1]
    assert Workload("itl", 8, percentile=95).n_compared(8) == 1
    pair = Pair((16_000_000,), (32_000_000,), candidate_first=False, n_tokens=(8, 16))
    assert pair.figures(token) == (2.0, 2.0)
    assert pair.figures(tg) == (500.0, 500.0)
    assert (token.unit, tg.unit, token.name) == ("ms", "tok/s", tg.name)


def test_the_time_of_a_reply_is_that_of_its_parts() -> None:
    """Speculation is judged by the time of a whole reply, of which a run may be a quarter."""
    pair = Pair((2_000_000,), (3_000_000,), candidate_first=False, parts=4)
    assert pair.figures(Workload("sd", 64)) == (8.0, 12.0)
    assert replace(pair, n_tokens=(16, 16)).figures(Workload("itl", 64)) == (0.125, 0.1875)


Log = list[tuple[str, object]]
PLENTY_S = 1e6


def opened(make: Callable[[str], FakeArm], coin: int = 1) -> PairedRunner:
    """Return a runner of two such variants, which write everything into the log."""
    opening = cast("OpenArms", tuple(partial(make, name) for name in "AB"))
    return PairedRunner(opening, random.Random(coin), 0.05)  # noqa: S311  # replayed


def runner(
    run_ms: float, left_s: float = PLENTY_S, **arm: Any
) -> tuple[PairedRunner, list[tuple[str, object]]]:
    """Return a rehearsed runner of two variants, and the log of their further requests."""
    log: Log = []
    paired = opened(lambda name: FakeArm(name, run_ms, log, **arm))
    paired.rehearse([TG, PP], left_s)
    log.clear()
    return paired, log


def test_both_arms_run_the_same_parts_in_turn() -> None:
    """Each run pair is the next part, the order alternates, and pairs go on from there."""
    paired, log = runner(run_ms=1600, left_s=0)
    pairs: list[Pair] = []
    for _ in range(2):
        paired.begin_pair()
        pairs.append(paired.run_turns(TG, pairs, alone=True))
    warm_up, done = log[:2], log[2:]
    assert [what for _, what in warm_up] == [("tg", 0, 16)] * 2
    assert [what for _, what in done[1::2]] == [("tg", n // 2, 16) for n in range(12)]
    for names in ("".join(name for name, _ in done[n + 1 : n + 13 : 2]) for n in (0, 12)):
        assert names in {"ABBAAB", "BAABBA"}


def test_each_run_follows_an_untimed_piece_of_its_own_work() -> None:
    """No timed run finds the other variant's data in the caches."""
    paired, log = runner(run_ms=1600)
    paired.begin_pair()
    paired.run_turns(TG, [], alone=True)
    done = log[2:]
    for (arm, piece), (same_arm, run) in zip(done[::2], done[1::2], strict=True):
        assert arm == same_arm
        assert piece == ("before", "tg", cast("tuple[str, int, int]", run)[1])


def test_a_turns_runs_are_told_apart_by_their_order() -> None:
    """The first runs of the run pairs are alternately of either variant."""
    pair = Pair((1, 2, 3), (10, 20, 30), candidate_first=True)
    assert pair.in_turn == ((10, 2, 30), (1, 20, 3))


def test_each_pair_has_processes_of_its_own() -> None:
    """The rehearsal's are those of the first pair, and all workloads of a pair share them."""
    paired, log = runner(run_ms=1600)
    renewed = []
    for _ in range(2):
        paired.begin_pair()
        renewed += [paired.run_turns(w, [], alone=False).is_renewed for w in (TG, PP)]
    paired.__exit__()
    assert renewed == [True] * 4
    processes = [(name, what) for name, what in log if what in {"open", "end"}]
    ends = {("A", "end"), ("B", "end")}
    assert set(processes[:2]) == set(processes[4:]) == ends
    assert set(processes[2:4]) == {("A", "open"), ("B", "open")}


@pytest.mark.parametrize(("left_s", "url"), [(30.0, None), (PLENTY_S, "http://127.0.0.1")])
def test_processes_are_kept_if_a_verdict_needs_more_than_the_time_allows(
    left_s: float, url: str | None
) -> None:
    """Five pairs last longer than 30 s; and an external server is not started again."""
    paired, log = runner(run_ms=5_000, left_s=left_s, url=url)
    renewed = []
    for _ in range(2):
        paired.begin_pair()
        renewed.append(paired.run_turns(TG, [], alone=True).is_renewed)
    assert renewed == [True, False]
    assert "open" not in {what for _, what in log}


@pytest.mark.parametrize(("usable", "is_ahead"), [((0, 1, 2, 3), True), ((0, 1, 2), False)])
def test_the_next_processes_start_during_a_pair_if_cores_are_left(
    monkeypatch: pytest.MonkeyPatch, usable: tuple[int, ...], *, is_ahead: bool
) -> None:
    """Two cores in addition to those of the runs are enough, and unused processes are ended."""
    monkeypatch.setattr(paired_runner, "usable_cores", lambda: usable)
    paired, log = runner(run_ms=1600, layers_offloaded=0)
    with paired:
        paired.begin_pair()
        if paired._next is not None:
            paired._next.result()
        paired.run_turns(TG, [], alone=True)
        n_opened = sum(what == "open" for _, what in log)
        assert n_opened == 2 * is_ahead
        paired.begin_pair()
    assert sum(what == "open" for _, what in log) == (4 if is_ahead else 2)
    assert sum(what == "end" for _, what in log) == (6 if is_ahead else 4)


def test_a_pair_is_not_short_beside_what_its_processes_take() -> None:
    """Two seconds of starting and loading are followed by one of timed work."""
    assert PairLength.of(2.5e7, 1, opening_ns=2e9) == PairLength(1, 25, 20)
    assert PairLength.of(1e8, 1, opening_ns=2e9) == PairLength(1, 10, 5)


def test_pairs_of_a_later_visit_go_on_with_the_next_part() -> None:
    """A gate that returns to a check with fresh processes does not time the first parts again."""
    paired, log = runner(run_ms=1600)
    paired.begin_pair()
    paired.run_turns(TG, [_pair(0.0)] * 3, alone=True)
    assert {what for _, what in log[2:][1::2]} == {("tg", part, 16) for part in (9, 10, 11)}


@dataclass(eq=False)
class WithTail(FakeArm):
    """A variant of which a minority of steps, or prompts, is three times as slow in B."""

    def run(self, workload: Workload, turn: int, parts: int) -> SimpleNamespace:
        """Time the steps of a generation, or a prompt."""
        run = super().run(workload, turn, parts)
        slow = 3 if self.name == "B" else 1
        steps = [1_000_000 * (slow if n % 10 == 9 else 1) for n in range(workload.n_tokens)]
        prompt_ns = 1_000_000 * (slow if turn % 5 == 4 else 1)
        elapsed_ns = sum(steps) if workload.generates else prompt_ns
        return SimpleNamespace(
            **{**vars(run), "elapsed_ns": elapsed_ns}, step_ns=steps, requests=()
        )


@pytest.mark.parametrize("kind", ["itl", "ttft"])
def test_a_pair_of_tails_has_a_percentile_of_each_arm(kind: WorkloadKind) -> None:
    """The p95 of all tokens, or of so many requests that one lies beyond it; no median hides it."""
    log: list[tuple[str, object]] = []
    paired = opened(lambda name: WithTail(name, 1, log, served="s"))
    tail, typical = (Workload(kind, 40, percentile=p) for p in (95, 50))
    paired.rehearse([tail, typical], PLENTY_S)
    pairs = [paired.run_turns(workload, [], alone=False) for workload in (tail, typical)]
    assert [pair.baseline_costs for pair in pairs] == [(1_000_000,)] * 2
    assert [pair.candidate_costs for pair in pairs] == [(3_000_000,), (1_000_000,)]


def test_a_rehearsal_of_a_long_generation_is_short() -> None:
    """A part predicts the duration of the whole."""
    log: list[tuple[str, object]] = []
    opened(lambda name: FakeArm(name, 5_000, log)).rehearse([TG], PLENTY_S)
    assert [what for _, what in log[2:]] == [("tg", 0, 16)] * 2


def test_only_what_changed_is_warmed_up() -> None:
    """A pair of one workload in kept processes begins where the last one ended; others warm up."""
    paired, log = runner(run_ms=1600, left_s=0)
    for alone, warm_ups in ((True, 2), (True, 0), (False, 2)):
        log.clear()
        paired.begin_pair()
        paired.run_turns(TG, [], alone=alone)
        assert len(log) == 12 + warm_ups


@pytest.mark.parametrize("run_ms", [900, 1100])
def test_any_run_of_a_pair_may_be_examined(run_ms: float) -> None:
    """An engine that counts calls cannot foresee it, and the next run is warmed up again.

    A short workload is then examined as a whole, too.
    """
    examined_after = set()
    for coin in range(20):
        log: list[tuple[str, object]] = []
        paired = opened(partial(FakeArm, run_ms=run_ms, log=log), coin)
        paired.rehearse([TG], 0)
        paired.begin_pair()
        log.clear()
        paired.run_turns(TG, [], alone=True, examines=True)
        assert paired.examined == (None, None)
        ran = [what for name, what in log if name == "A"]
        before = ran.index("examined whole" if run_ms < 1000 else "examined")
        # A warm-up, then for each run what is decoded before it.
        examined_after.add((before - 1) // 2)
        assert len(ran) == 1 + 2 * 3 + 1 + (before < len(ran) - 1)
    assert examined_after == {1, 2, 3}


def test_a_run_of_seconds_is_not_warmed_up() -> None:
    """The first run's extra time is small compared with it, and a warm-up would cost a run."""
    paired, log = runner(run_ms=3000, left_s=0)
    paired.begin_pair()
    paired.run_turns(PP, [], alone=False)
    assert sorted(log) == sorted(
        (arm, run) for arm in "AB" for run in (("before", "pp", 0), ("pp", 0, 1))
    )


@pytest.mark.parametrize("usable", [(0, 1, 2, 3), (0, 1, 2)])
def test_arms_warm_up_side_by_side_and_are_timed_on_shared_cores(
    monkeypatch: pytest.MonkeyPatch, usable: tuple[int, ...]
) -> None:
    """If cores are enough for both, untimed work has all of them; a run pair never has."""
    monkeypatch.setattr(paired_runner, "usable_cores", lambda: usable)
    paired, log = runner(run_ms=1600, layers_offloaded=0)
    paired.begin_pair()
    paired.run_turns(TG, [], alone=True)
    done = [what[1] if isinstance(what, tuple) and what[0] == "cores" else what for _, what in log]
    warm_ups = [("tg", 0, 16)] * 2
    turns = [("tg", number // 2, 16) for number in range(6)]
    done = [what for what in done if what != "open"]
    if len(usable) == 3:
        assert done[:4] == [2, 2, *warm_ups]
    else:
        assert done[:8] == [2, 2, 4, 4, *warm_ups, 2, 2]
    assert done[-11::2] == turns
