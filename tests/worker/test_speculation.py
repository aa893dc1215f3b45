"""Draft and verify on real models, in the engine's own process."""

from __future__ import annotations

import contextlib
import sys
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from scipy.stats import kstest  # type: ignore[import-untyped]  # it ships no types

from pytest_asperf.config.spec import EngineSettings, ModelRef, ModelSpec, Variant
from pytest_asperf.engine_process import EngineBuild, EngineRefusedError, Worker
from pytest_asperf.measure.draft_target import room_after_prompt
from pytest_asperf.measure.model_locator import ModelShelf
from pytest_asperf.modelfiles.shipped import shipped_models
from pytest_asperf.worker.engine import RefusalError
from pytest_asperf.worker.speculation import Greedy, NgramDrafter, Proposal, Sampled

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pytest_asperf.config.engines import Engine

#: Levels by what they are to the model: itself, a good draft, and a poor one.
_LEVELS = {
    "llama_cpp": {"whole": "F16", "good": "Q4_0", "poor": "Q2_K"},
    "mlx": {"whole": "F16", "good": "4bit", "poor": "2bit"},
}
_TEXT = "def area(width, height):\n    return width * height\n\n\ndef volume(width, height, depth)"
_N_NEW = 48


@dataclass(frozen=True)
class Bench:
    """A worker with the shipped draft loaded in several forms, and a prompt."""

    worker: Worker
    prompt: list[int]

    def generate(self, k: int, *, pair: str = "pair", **changed: Any) -> dict[str, Any]:
        """Generate from the prompt."""
        asked = {"n_new": _N_NEW, "temperature": 0.0, "seed": 1, "rule": "exact", **changed}
        return self.worker.call("pair_generate", pair=pair, prompt=self.prompt, k=k, **asked)

    def open(self, target: str, draft: str, rollback: str = "auto") -> dict[str, Any]:
        """Open a pair, under the name `pair`."""
        asked: dict[str, Any] = {"n_ctx": 256, "k": 4, "rollback": rollback}
        return self.worker.call("pair_open", pair="pair", target=target, draft=draft, **asked)

    def shortfall(self, alone: list[int], other: list[int]) -> float:
        """Return how far the other's first different token is below the likeliest; 0 if none is."""
        for n, tokens in enumerate(zip(alone, other, strict=True)):
            if tokens[0] != tokens[1]:
                text = self.prompt + alone[:n]
                found = self.worker.call(
                    "pair_margin", pair="pair", text=text, batch=5, behind=2, tokens=list(tokens)
                )
                return float(max(*found["batched"], *found["single"]))
        return 0.0


@pytest.fixture(scope="module", params=list(_LEVELS))
def worker(request: pytest.FixtureRequest, session_cache: Path) -> Iterator[Worker]:
    """One process with all models of this module, on each engine."""
    engine: Engine = request.param
    if engine == "mlx":
        request.getfixturevalue("mlx")
    build = EngineBuild(engine, Path(sys.executable))
    shelf = ModelShelf(build, cache=session_cache, call_timeout_s=120)
    (spec,) = (spec for spec in shipped_models() if spec.name == "asperf-draft")
    settings = EngineSettings(threads=1) if engine == "llama_cpp" else EngineSettings()
    with Worker(build) as worker:
        for name, level in _LEVELS[engine].items():
            worker.load(name, shelf.locate(ModelRef(spec, level)).path, settings)
        whole = shelf.locate(ModelRef(spec, _LEVELS[engine]["whole"])).path
        worker.load("narrow", whole, replace(settings, n_batch=2))
        for variant in (Variant("hybrid", 0), Variant("recurrent", 1)):
            varied = ModelSpec(variant.kind, hf_folder=spec.hf_folder, variant=variant)
            worker.load(variant.kind, shelf.locate(ModelRef(varied)).path, settings)
        yield worker


@pytest.fixture
def bench(worker: Worker) -> Iterator[Bench]:
    """The worker and a prompt, with no pair open."""
    yield Bench(worker, worker.tokenize("whole", _TEXT))
    with contextlib.suppress(EngineRefusedError):  # a test may have opened none
        worker.call("pair_close", pair="pair")


def test_speculation_emits_what_the_target_alone_does(bench: Bench) -> None:
    """Greedy output differs from the target's own at a near-tie or not at all, with counts."""
    facts = bench.open("whole", "good")
    assert (facts["target"]["rollback"], facts["draft"]["rollback"]) == ("trim", "trim")
    alone, both = bench.generate(0), bench.generate(4)
    assert len(alone["tokens"]) == len(both["tokens"]) == _N_NEW
    assert bench.shortfall(alone["tokens"], both["tokens"]) <= 0.5
    rounds = np.array(both["rounds"])
    drafted, accepted, emitted = rounds[:, :3].T
    assert emitted.sum() == _N_NEW
    assert (emitted == accepted + 1).all()
    assert (accepted <= drafted).all()
    assert (drafted <= 4).all()
    assert accepted.sum() > _N_NEW / 2  # a model's own lower level predicts it well
    assert rounds[:, 3:].sum() <= both["elapsed_ns"]


def test_the_target_alone_drafts_nothing(bench: Bench) -> None:
    """Without a draft each round is one token, and no time goes into drafting."""
    bench.open("whole", "good")
    rounds = np.array(bench.generate(0)["rounds"])
    assert (rounds[:, :3] == [0, 0, 1]).all()
    assert len(rounds) == _N_NEW


def test_a_repeated_run_is_the_same_run(bench: Bench) -> None:
    """What an earlier run left in the memory changes nothing: greedy, sampled, with and without."""
    bench.open("whole", "good")
    for k, temperature in ((0, 0.0), (4, 0.0), (4, 1.0), (4, 0.0), (0, 0.0), (4, 1.0)):
        first, again = (bench.generate(k, temperature=temperature) for _ in range(2))
        assert first["tokens"] == again["tokens"]


def test_a_hybrid_is_rolled_back_by_checkpoints(bench: Bench) -> None:
    """A recurrent part cannot forget its tail: the state is put back, and that takes time."""
    bench.open("whole", "good")
    plain = bench.generate(4)
    bench.worker.call("pair_close", pair="pair")
    facts = bench.open("hybrid", "good")
    assert (facts["target"]["memory"], facts["target"]["rollback"]) == ("hybrid", "checkpoint")
    both = bench.generate(4)
    assert bench.shortfall(bench.generate(0)["tokens"], both["tokens"]) <= 0.5
    rolled_back_ns = [sum(one[5] for one in run["rounds"]) for run in (plain, both)]
    assert rolled_back_ns[1] > rolled_back_ns[0]


def test_what_cannot_be_rolled_back_is_refused_before_a_decode_fails(bench: Bench) -> None:
    """A hybrid without checkpoints is refused with the reason, and the engine saw no error."""
    with pytest.raises(EngineRefusedError, match="hybrid and cannot be rolled back") as caught:
        bench.open("hybrid", "good", rollback="trim")
    assert caught.value.breaks_measurement
    assert "decode" not in bench.worker.log_tail
    with pytest.raises(EngineRefusedError, match="recurrent and cannot be rolled back"):
        bench.open("whole", "recurrent", rollback="trim")


def test_a_recurrent_draft_is_rolled_back_too(bench: Bench) -> None:
    """A draft of another function is mostly rejected; its state follows the text nevertheless."""
    facts = bench.open("whole", "recurrent")
    assert facts["draft"]["rollback"] == "checkpoint"
    alone, both = bench.generate(0), bench.generate(3)
    assert bench.shortfall(alone["tokens"], both["tokens"]) <= 0.5


def test_a_recurrent_model_is_its_own_perfect_draft(bench: Bench) -> None:
    """With checkpoints on both sides a model accepts what it drafts itself."""
    bench.open("recurrent", "recurrent")
    drafted, accepted = np.array(bench.generate(4)["rounds"])[:, :2].sum(axis=0)
    assert accepted >= 0.9 * drafted


def test_lookup_drafts_from_the_text_itself(bench: Bench) -> None:
    """The draft that is no model costs next to nothing and is right where text repeats."""
    bench.open("whole", "ngram")
    alone, both = bench.generate(0), bench.generate(4)
    assert bench.shortfall(alone["tokens"], both["tokens"]) <= 0.5
    rounds = np.array(both["rounds"])
    assert rounds[:, 1].sum() > 0
    assert rounds[:, 3].sum() < rounds[:, 4].sum()


def test_costs_are_timed_by_batch(bench: Bench) -> None:
    """Each batch asked for but the first is timed, with the draft's steps in its company."""
    bench.open("whole", "good")
    found = bench.worker.call(
        "pair_costs", pair="pair", prompt=bench.prompt, batches=[3, 3, 1, 3, 1], k=2
    )
    assert [(size, len(times)) for size, times in found["target_ns"]] == [(3, 2), (1, 2)]
    firsts, pairs, later = (found["draft_ns"][n] for n in ("first", "first_of_two", "next"))
    assert (len(firsts), len(pairs), len(later)) == (2, 2, 4)


def test_a_batch_is_verified_at_once_however_prompts_are_split(bench: Bench) -> None:
    """Prompts in batches of two leave room for the five tokens that a round verifies."""
    bench.open("narrow", "good")
    alone, both = bench.generate(0), bench.generate(4)
    assert bench.shortfall(alone["tokens"], both["tokens"]) <= 0.5


@pytest.mark.parametrize("n_new", [24, 8])  # the runs need most, and the single batches
@pytest.mark.parametrize("pair", [("whole", "good"), ("hybrid", "good"), ("whole", "ngram")])
def test_a_context_is_filled_to_its_last_token(
    bench: Bench, pair: tuple[str, str], n_new: int
) -> None:
    """What a measurement asks for fits into the room for it, and one token more does not."""
    bench.open(*pair)
    longest = (bench.prompt * 16)[: 256 - room_after_prompt(n_new, 4)]

    def fill(prompt: list[int]) -> None:
        full = Bench(bench.worker, prompt)
        alone, both = (full.generate(k, n_new=n_new) for k in (0, 4))
        assert len(alone["tokens"]) == len(both["tokens"]) == n_new
        text = prompt + alone["tokens"][: n_new // 2]
        asked: dict[str, Any] = {"batches": [1, 5], "k": 4}
        bench.worker.call("pair_costs", pair="pair", prompt=text, **asked)

    fill(longest)
    with pytest.raises(EngineRefusedError, match=r"refused \(decode\)"):
        fill([*longest, longest[0]])


@pytest.mark.parametrize("drafter", ["good", "ngram"])
def test_sampling_keeps_the_targets_distribution(bench: Bench, drafter: str) -> None:
    """Places of sampled tokens in the target's distribution are uniform."""
    bench.open("whole", drafter)
    # MLX is slow without a GPU.
    n_samples = 25 if bench.worker.describe()["engine"] == "mlx" else 150
    assert _p_value(_places(bench, "exact", n_samples)) > 1e-3


@pytest.mark.parametrize("worker", ["llama_cpp"], indirect=True)
def test_a_wrong_acceptance_rule_is_seen(bench: Bench) -> None:
    """Drawing from the target instead of the residual keeps too much of the draft's."""
    bench.open("whole", "poor")
    assert _p_value(_places(bench, "exact")) > 1e-3
    assert _p_value(_places(bench, "no-residual")) < 1e-5


def _p_value(places: list[float]) -> float:
    """Return how probable places so uneven are, if they are uniform (Kolmogorov and Smirnov)."""
    return float(kstest(places, "uniform").pvalue)


def _places(bench: Bench, rule: str, n_samples: int = 150) -> list[float]:
    asked: dict[str, Any] = {
        "n_new": 8,
        "k": 4,
        "temperature": 1.0,
        "seeds": list(range(n_samples)),
        "rule": rule,
    }
    found = bench.worker.call("pair_ranks", pair="pair", prompt=bench.prompt, **asked)
    places: list[float] = found["places"]
    assert len(places) == 8 * n_samples
    return places


def test_a_pair_that_was_never_opened_is_refused(bench: Bench) -> None:
    """Only open pairs can be asked."""
    with pytest.raises(EngineRefusedError, match="no pair 'pair' is open"):
        bench.generate(4)


def test_logits_that_are_no_numbers_are_refused() -> None:
    """NaN is no token's logit, greedy or sampled."""
    rows = np.zeros((1, 4), np.float32)
    rows[0, 2] = np.nan
    for how in (Greedy(), Sampled(1.0, 0)):
        with pytest.raises(RefusalError, match="largest logit of a row is nan"):
            how.judge(rows, Proposal([]))


def test_greedy_keeps_the_agreeing_head() -> None:
    """Drafted tokens are kept up to the first that the target would not have said."""
    rows = np.eye(5, dtype=np.float32)[[3, 1, 4, 2]]
    assert Greedy().judge(rows, Proposal([3, 1, 0])) == [3, 1, 4]
    assert Greedy().judge(rows, Proposal([3, 1, 4])) == [3, 1, 4, 2]


def test_lookup_continues_the_longest_match() -> None:
    """Of the text's end the longest known piece is continued as it last went on."""
    drafter = NgramDrafter()
    drafter.begin([])
    assert drafter.propose([1, 2, 3, 9, 2, 3, 8, 1, 2, 3], 2).tokens == [9, 2]
    assert drafter.propose([1, 2, 3, 9, 2, 3, 8, 1, 2, 3, 7], 2).tokens == []
