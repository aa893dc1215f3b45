"""Draft and verify on real models, in the engine's own process."""

import contextlib
import sys
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import pytest
from scipy.stats import kstest  # type: ignore[import-untyped]  # it ships no types

from pytest_asperf.config.engine_settings import EngineSettings
from pytest_asperf.config.engines import Engine
from pytest_asperf.config.spec import ModelRef, ModelSpec, Variant
from pytest_asperf.engine_process import EngineBuild, EngineRefusedError, Worker
from pytest_asperf.measure.drafted_target import room_after_prompt
from pytest_asperf.modelfiles.hub_cache import shipped_models
from pytest_asperf.modelfiles.locate import ModelLocator
from pytest_asperf.worker.engine import RefusalError
from pytest_asperf.worker.speculation import Greedy, NgramDrafter, Proposal, Sampled
from tests.modelfiles.gguf_files import write_padded

#: Quantizations by their relation to the model: itself, a good draft, and a poor one for wrong
#: rules.
_LEVELS = {
    "llama_cpp": {"whole": "F16", "good": "Q4_0", "poor": "Q2_K"},
    "mlx": {"whole": "F32", "good": "4bit"},
}
_TEXT = "def area(width, height):\n    return width * height\n\n\ndef volume(width, height, depth)"


@dataclass(frozen=True)
class MeasurementContext:
    """A worker with the shipped draft loaded in several forms, and a prompt."""

    worker: Worker
    prompt: list[int]
    n_new: int = 48
    n_ctx: int = 256  #: llama.cpp makes none smaller

    def generate(self, k: int, *, pair: str = "pair", **changed: Any) -> dict[str, Any]:
        """Generate from the prompt."""
        asked = {"n_new": self.n_new, "temperature": 0.0, "seed": 1, "rule": "exact", **changed}
        return self.worker.call("pair_generate", pair=pair, prompt=self.prompt, k=k, **asked)

    def open(self, target: str, draft: str, rollback: str = "auto") -> dict[str, Any]:
        """Open a pair, under the name `pair`."""
        asked: dict[str, Any] = {"n_ctx": self.n_ctx, "k": 4, "rollback": rollback}
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


@pytest.fixture(
    scope="module",
    params=[
        pytest.param("llama_cpp", marks=pytest.mark.live),
        pytest.param("mlx", marks=[pytest.mark.live, pytest.mark.mlx]),
    ],
)
def worker(request: pytest.FixtureRequest, session_cache: Path) -> Iterator[Worker]:
    """One process with all models of this module, on each engine."""
    engine: Engine = request.param
    if engine == "mlx":
        request.getfixturevalue("mlx")
    build = EngineBuild(engine, Path(sys.executable))
    locator = ModelLocator(build, cache=session_cache, call_timeout_s=120)
    (spec,) = (spec for spec in shipped_models() if spec.name == "asperf-draft")
    settings = EngineSettings(threads=1) if engine == "llama_cpp" else EngineSettings()
    with Worker(build) as worker:
        for name, level in _LEVELS[engine].items():
            worker.load(name, locator.locate(ModelRef(spec, level)).path, settings)
        whole = locator.locate(ModelRef(spec, _LEVELS[engine]["whole"])).path
        worker.load("narrow", whole, replace(settings, n_batch=2))
        worker.load("slow", whole, replace(settings, slow_by=3.0))
        for variant in (Variant("hybrid", 0), Variant("recurrent", 1)):
            varied = ModelSpec(variant.kind, hf_folder=spec.hf_folder, variant=variant)
            worker.load(variant.kind, locator.locate(ModelRef(varied)).path, settings)
        yield worker


@pytest.fixture
def measurement(worker: Worker) -> Iterator[MeasurementContext]:
    """The worker and a prompt, with no pair open."""
    prompt = worker.tokenize("whole", _TEXT)
    is_slow = worker.describe().engine == "mlx"  # without a GPU
    yield MeasurementContext(worker, prompt, *((24, 64) if is_slow else ()))
    with contextlib.suppress(EngineRefusedError):  # a test may have opened none
        worker.call("pair_close", pair="pair")


def test_speculation_emits_what_the_target_alone_does(measurement: MeasurementContext) -> None:
    """Greedy output differs from the target's own at a near-tie or not at all, with counts."""
    facts = measurement.open("whole", "good")
    assert (facts["target"]["rollback"], facts["draft"]["rollback"]) == ("trim", "trim")
    alone, both = measurement.generate(0), measurement.generate(4)
    assert len(alone["tokens"]) == len(both["tokens"]) == measurement.n_new
    assert measurement.shortfall(alone["tokens"], both["tokens"]) <= 0.5
    rounds = np.array(both["rounds"])
    drafted, accepted, emitted = rounds[:, :3].T
    assert emitted.sum() == measurement.n_new
    assert (emitted == accepted + 1).all()
    assert (accepted <= drafted).all()
    assert (drafted <= 4).all()
    # A model's own smaller quantization predicts it well.
    assert accepted.sum() > measurement.n_new / 2
    assert rounds[:, 3:].sum() <= both["elapsed_ns"]


def test_the_target_alone_drafts_nothing(measurement: MeasurementContext) -> None:
    """Without a draft each round is one token, and no time goes into drafting."""
    measurement.open("whole", "good")
    rounds = np.array(measurement.generate(0)["rounds"])
    assert (rounds[:, :3] == [0, 0, 1]).all()
    assert len(rounds) == measurement.n_new


def test_a_slowed_target_slows_every_round(measurement: MeasurementContext) -> None:
    """A round's drafting and verifying are four times as slow at `slow_by = 3`."""
    measurement.open("slow", "good")
    for k in (0, 4):
        done = measurement.generate(k)
        assert 4 * np.array(done["rounds"])[:, 3:].sum() <= done["elapsed_ns"]


def test_a_repeated_run_is_the_same_run(measurement: MeasurementContext) -> None:
    """An earlier run's content of the memory changes nothing: greedy, sampled, with and without."""
    measurement.open("whole", "good")
    alone, greedy, sampled = (0, 0.0), (4, 0.0), (4, 1.0)
    first: dict[tuple[int, float], list[int]] = {}
    for how in (alone, alone, greedy, greedy, sampled, sampled, greedy, alone, sampled):
        tokens = measurement.generate(how[0], temperature=how[1])["tokens"]
        assert tokens == first.setdefault(how, tokens)


def test_parts_of_a_reply_are_the_whole_reply(measurement: MeasurementContext) -> None:
    """A generation goes on in the memory of the one before, or after another text in between."""
    measurement.open("whole", "good")
    whole, each = measurement.generate(4)["tokens"], measurement.n_new // 3
    for between in (None, measurement.prompt[5:]):
        parts: list[int] = []
        for first in range(0, measurement.n_new, each):
            if between:
                replace(measurement, prompt=between).generate(4)
            begun = replace(measurement, prompt=measurement.prompt + whole[:first], n_new=each)
            parts += begun.generate(4)["tokens"]
        assert measurement.shortfall(whole, parts) <= 0.5


def test_a_hybrid_is_rolled_back_by_checkpoints(measurement: MeasurementContext) -> None:
    """A recurrent part cannot forget its end: the state is restored, and that costs time."""
    measurement.open("whole", "good")
    plain = measurement.generate(4)
    measurement.worker.call("pair_close", pair="pair")
    facts = measurement.open("hybrid", "good")
    assert (facts["target"]["memory"], facts["target"]["rollback"]) == ("hybrid", "checkpoint")
    both = measurement.generate(4)
    assert measurement.shortfall(measurement.generate(0)["tokens"], both["tokens"]) <= 0.5
    # Other work delays single rounds by more than all of them cost.
    rolled_back_ns = [median(filter(None, (one[5] for one in r["rounds"]))) for r in (plain, both)]
    assert rolled_back_ns[1] > rolled_back_ns[0]


def test_what_cannot_be_rolled_back_is_refused_before_a_decode_fails(
    measurement: MeasurementContext,
) -> None:
    """A hybrid without checkpoints raises with the reason, and the engine saw no error."""
    with pytest.raises(EngineRefusedError, match="hybrid and cannot be rolled back") as caught:
        measurement.open("hybrid", "good", rollback="trim")
    assert caught.value.breaks_measurement
    assert "decode" not in measurement.worker.log_tail
    with pytest.raises(EngineRefusedError, match="recurrent and cannot be rolled back"):
        measurement.open("whole", "recurrent", rollback="trim")


def test_a_recurrent_draft_is_rolled_back_too(measurement: MeasurementContext) -> None:
    """A draft of another function is mostly rejected; its state follows the text nevertheless."""
    facts = measurement.open("whole", "recurrent")
    assert facts["draft"]["rollback"] == "checkpoint"
    alone, both = measurement.generate(0), measurement.generate(3)
    assert measurement.shortfall(alone["tokens"], both["tokens"]) <= 0.5


def test_a_recurrent_model_is_its_own_perfect_draft(measurement: MeasurementContext) -> None:
    """With checkpoints in both, a model accepts its own drafts."""
    measurement.open("recurrent", "recurrent")
    drafted, accepted = np.array(measurement.generate(4)["rounds"])[:, :2].sum(axis=0)
    assert accepted >= 0.9 * drafted


def test_lookup_drafts_from_the_text_itself(measurement: MeasurementContext) -> None:
    """The draft that is no model costs next to nothing and is right where text repeats."""
    measurement.open("whole", "ngram")
    alone, both = measurement.generate(0), measurement.generate(4)
    assert measurement.shortfall(alone["tokens"], both["tokens"]) <= 0.5
    rounds = np.array(both["rounds"])
    assert rounds[:, 1].sum() > 0
    assert rounds[:, 3].sum() < rounds[:, 4].sum()


def test_costs_are_timed_by_batch(measurement: MeasurementContext) -> None:
    """Each requested batch but the first is timed, with the draft's steps in its company."""
    measurement.open("whole", "good")
    found = measurement.worker.call(
        "pair_costs", pair="pair", prompt=measurement.prompt, batches=[3, 3, 1, 3, 1], k=2
    )
    assert [(size, len(times)) for size, times in found["target_ns"]] == [(3, 2), (1, 2)]
    firsts, pairs, later = (found["draft_ns"][n] for n in ("first", "first_of_two", "next"))
    assert (len(firsts), len(pairs), len(later)) == (2, 2, 4)


def test_a_batch_is_verified_at_once_however_prompts_are_split(
    measurement: MeasurementContext,
) -> None:
    """Prompts in batches of two leave room for the five tokens that a round verifies."""
    measurement.open("narrow", "good")
    alone, both = measurement.generate(0), measurement.generate(4)
    assert measurement.shortfall(alone["tokens"], both["tokens"]) <= 0.5


@pytest.mark.parametrize("n_new", [24, 8])  # the runs need most, and the single batches
@pytest.mark.parametrize("pair", [("whole", "good"), ("hybrid", "good"), ("whole", "ngram")])
def test_a_context_is_filled_to_its_last_token(
    measurement: MeasurementContext, pair: tuple[str, str], n_new: int
) -> None:
    """A measurement's requests fit into their room, and one token more does not."""
    measurement.open(*pair)
    longest = (measurement.prompt * 16)[: measurement.n_ctx - room_after_prompt(n_new, 4)]

    def fill(prompt: list[int]) -> None:
        full = MeasurementContext(measurement.worker, prompt)
        alone, both = (full.generate(k, n_new=n_new) for k in (0, 4))
        assert len(alone["tokens"]) == len(both["tokens"]) == n_new
        text = prompt + alone["tokens"][: n_new // 2]
        asked: dict[str, Any] = {"batches": [1, 5], "k": 4}
        measurement.worker.call("pair_costs", pair="pair", prompt=text, **asked)

    fill(longest)
    with pytest.raises(EngineRefusedError, match=r"error \(decode\)"):
        fill([*longest, longest[0]])


@pytest.mark.parametrize("drafter", ["good", "ngram"])
def test_sampling_keeps_the_targets_distribution(
    measurement: MeasurementContext, drafter: str
) -> None:
    """Places of sampled tokens in the target's distribution are uniform."""
    measurement.open("whole", drafter)
    # MLX is slow without a GPU.
    n_samples = 25 if measurement.worker.describe().engine == "mlx" else 150
    assert _p_value(_places(measurement, "exact", n_samples)) > 1e-3


# The target would sample its own padding, as the weights of it are zero here.
@pytest.mark.live
@pytest.mark.parametrize("worker", ["llama_cpp"], indirect=True)
def test_a_padded_draft_keeps_the_targets_distribution(
    measurement: MeasurementContext, tmp_path: Path, draft_gguf: Path
) -> None:
    """Unused tokens of the draft alone are no tokens of the target."""
    padded = write_padded(draft_gguf, tmp_path / "padded.gguf", 64)
    measurement.worker.load("padded", padded, EngineSettings(threads=1))
    measurement.open("whole", "padded")
    assert _p_value(_places(measurement, "exact")) > 1e-3
    measurement.worker.call("pair_close", pair="pair")
    measurement.worker.unload("padded")


@pytest.mark.live
@pytest.mark.parametrize("worker", ["llama_cpp"], indirect=True)
def test_a_wrong_acceptance_rule_is_seen(measurement: MeasurementContext) -> None:
    """Drawing from the target instead of the residual keeps too much of the draft's."""
    measurement.open("whole", "poor")
    assert _p_value(_places(measurement, "exact")) > 1e-3
    assert _p_value(_places(measurement, "no-residual")) < 1e-5


def _p_value(places: list[float]) -> float:
    """Return how probable places so uneven are, if they are uniform (Kolmogorov and Smirnov)."""
    return float(kstest(places, "uniform").pvalue)


def _places(measurement: MeasurementContext, rule: str, n_samples: int = 150) -> list[float]:
    asked: dict[str, Any] = {
        "n_new": 8,
        "k": 4,
        "temperature": 1.0,
        "seeds": list(range(n_samples)),
        "rule": rule,
    }
    found = measurement.worker.call("pair_ranks", pair="pair", prompt=measurement.prompt, **asked)
    places: list[float] = found["places"]
    assert len(places) == 8 * n_samples
    return places


def test_a_pair_that_was_never_opened_is_refused(measurement: MeasurementContext) -> None:
    """Only open pairs can be used."""
    with pytest.raises(EngineRefusedError, match="no pair 'pair' is open"):
        measurement.generate(4)


def test_logits_that_are_no_numbers_are_refused() -> None:
    """NaN is no token's logit, greedy or sampled."""
    rows = np.zeros((1, 4), np.float32)
    rows[0, 2] = np.nan
    for how in (Greedy(), Sampled(1.0, 0)):
        with pytest.raises(RefusalError, match="largest logit of a row is nan"):
            how.judge(rows, Proposal([]))


def test_greedy_keeps_the_agreeing_head() -> None:
    """Drafted tokens are kept up to the first that the target would not emit."""
    rows = np.eye(5, dtype=np.float32)[[3, 1, 4, 2]]
    assert Greedy().judge(rows, Proposal([3, 1, 0])) == [3, 1, 4]
    assert Greedy().judge(rows, Proposal([3, 1, 4])) == [3, 1, 4, 2]


def test_lookup_continues_the_longest_match() -> None:
    """The longest known piece of the text's end is continued as it last went on."""
    drafter = NgramDrafter()
    drafter.begin([])
    assert drafter.propose([1, 2, 3, 9, 2, 3, 8, 1, 2, 3], 2).tokens == [9, 2]
    assert drafter.propose([1, 2, 3, 9, 2, 3, 8, 1, 2, 3, 7], 2).tokens == []
