"""The rules of speculation on MLX alone: its caches, and a fault of mlx-lm that is found."""

import json
import math
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

import pytest

from pytest_asperf.analysis.stats.sequential import PairedTest
from pytest_asperf.analysis.verdict import Outcome, Subject, Verdict
from pytest_asperf.builds.build_cache import ReadyBuild
from pytest_asperf.config.engine_settings import EngineSettings
from pytest_asperf.config.spec import ModelRef, Pairing
from pytest_asperf.engine_process import EngineBuild, EngineRefusedError, StepCosts
from pytest_asperf.measure.drafted_target import TARGET, DraftedTarget
from pytest_asperf.measure.experiment import Arm, MachineLease, MeasurementPlan
from pytest_asperf.measure.speculation_result import PromptRun, SpeculationResult, SuitePair
from pytest_asperf.modelfiles.hub_cache import shipped_models
from pytest_asperf.modelfiles.locate import LocatedModel
from pytest_asperf.report.result_text import in_words
from pytest_asperf.report.verdict_text import lab_note
from pytest_asperf.verdicts.speculation import lossless_verdict
from pytest_asperf.worker.speculation import Generation, Round

#: Its second token from the end decides the next ones.
_TEXT = "def area(width, height):\n    return width"
_N_NEW = 24
_N_CTX = 64
_K = 3
_STEP_NS = 1_000_000


@dataclass(frozen=True)
class Judge:
    """The shipped pair on MLX, and the verdict on outputs of other rules."""

    pair: DraftedTarget
    pairing: Pairing
    prompt: list[int]

    @cached_property
    def alone(self) -> Generation:
        """The target's own output after the prompt."""
        return self.pair.after(0, speculative=False)

    def verdict(self, output: Generation) -> Verdict:
        """Judge output of the pair by the target's own, as `assert_lossless` does.

        Times are made up, those of a target that verifies a batch in a step and a half.
        """
        run = PromptRun(
            0,
            replace(self.alone, elapsed_ns=_N_NEW * _STEP_NS),
            replace(output, elapsed_ns=2 * len(output.rounds) * _STEP_NS),
            speculative_first=False,
        )
        draft_ns = _STEP_NS // (2 * _K)
        costs = StepCosts(
            {1: (_STEP_NS,), _K + 1: (3 * _STEP_NS // 2,)},
            {"first": (draft_ns,), "first_of_two": (), "next": (draft_ns,)},
            (),
        )
        test = PairedTest(min_pairs=5, max_pairs=5)
        for _ in range(5):
            test.update(math.log(run.alone.elapsed_ns / run.speculative.elapsed_ns))
        result = SpeculationResult(
            pairing=self.pairing,
            categories=("code",),
            pairs=(SuitePair((run,), costs, _K),) * 5,
            gain=test.estimate,
            divergences=self.pair.divergences([run]),
            contexts=self.pair.contexts,
            reloads=False,
            seed=0,
            ran=(),
        )
        return lossless_verdict(result, Subject("greedy output", "live"))


def _opened(mlx: EngineBuild, pairing: Pairing, *refs: ModelRef) -> DraftedTarget:
    """A process with a target and a draft, and contexts for the prompt of these tests."""
    side = tuple(
        Arm(
            ref.title,
            ReadyBuild(mlx),
            ref.spec.settings,
            LocatedModel(ref, ref.spec.hf_folder or Path(), "", 0, None),
        )
        for ref in refs
    )
    plan = MeasurementPlan()
    lease = MachineLease((side,), Path("no corpus"), plan, lambda *_: None, NotImplemented)
    pair = DraftedTarget(side, pairing, lease)
    pair.open(_N_CTX, _K)
    pair.prompts = (("code", tuple(pair.worker.tokenize(TARGET, _TEXT))),)
    return pair


@pytest.fixture(scope="module")
def judge(mlx: EngineBuild) -> Iterator[Judge]:
    """A worker with the shipped pair open."""
    refs = {spec.name: ModelRef(spec) for spec in shipped_models()}
    target, draft = (refs[f"asperf-{name}"] for name in ("target", "draft"))
    pairing = Pairing(target, draft, k=_K, n_tokens=_N_NEW)
    with _opened(mlx, pairing, target, draft) as pair:
        yield Judge(pair, pairing, list(pair.prompts[0][1]))


class MlxLm:
    """The same pair through mlx-lm's own speculation, in a process of its own.

    Attributes:
        held: tokens in the target's cache.
    """

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process
        self.held = 0

    def generate(self, prompt: list[int], n_new: int, forget: int | None = None) -> Generation:
        """Generate after a prompt, and read the rounds off which tokens the draft wrote.

        The prompt's cache is a new one, or the last one after it forgot so many tokens.
        """
        request = {"prompt": prompt, "n_new": n_new, "k": _K, "forget": forget}
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(request) + "\n")
        self._process.stdin.flush()
        answer = json.loads(self._process.stdout.readline())
        self.held = answer["held"]
        tokens, rounds, accepted = [], [], 0
        for token, from_draft in answer["tokens"]:
            tokens.append(token)
            accepted += from_draft
            if not from_draft or len(tokens) == n_new:
                rounds.append(Round(_K, accepted, accepted + (not from_draft), 0, 1, 0))
                accepted = 0
        return Generation(tokens, len(rounds), rounds)


@pytest.fixture(scope="module")
def mlx_lm(judge: Judge) -> Iterator[MlxLm]:
    """The shipped pair, in a process that mlx-lm may bring down alone."""
    models = (judge.pairing.target, judge.pairing.draft)
    folders = [str(ref.spec.hf_folder) for ref in models if ref]
    program = Path(__file__).with_name("mlx_lm_pair.py")
    with subprocess.Popen(
        [sys.executable, str(program), *folders],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        yield MlxLm(process)


def test_mlx_lms_own_speculation_is_lossless(judge: Judge, mlx_lm: MlxLm) -> None:
    """With a cache of its own each run gives the target's own output."""
    verdict = judge.verdict(mlx_lm.generate(judge.prompt, _N_NEW))
    assert verdict.outcome is Outcome.PASS, lab_note(verdict)


def test_a_reused_prompt_cache_is_found_out(judge: Judge, mlx_lm: MlxLm) -> None:
    """mlx-lm 0.32.2 leaves the target's cache a token short after a run that its own token ends.

    A rollback by the number of generated tokens, which is right after a run without a draft or one
    that a drafted token ends, replays the prompt without one of its tokens.
    """
    replays = {}
    for n_new in range(4, 12):
        first = mlx_lm.generate(judge.prompt, n_new)
        ends_on_draft = first.rounds[-1].accepted == first.rounds[-1].emitted
        if ends_on_draft in replays:
            continue
        is_whole = mlx_lm.held == len(judge.prompt) + n_new
        # A version without the fault is given it.
        forget = n_new + 1 + (is_whole and not ends_on_draft)
        replays[ends_on_draft] = judge.verdict(mlx_lm.generate(judge.prompt[-1:], _N_NEW, forget))
    assert replays[True].outcome is Outcome.PASS, lab_note(replays[True])
    assert replays[False].outcome is Outcome.FAIL, lab_note(replays[False])
    assert "below the likeliest token's logit" in in_words(replays[False]).measured


def test_a_context_is_not_exceeded(judge: Judge, monkeypatch: pytest.MonkeyPatch) -> None:
    """MLX's caches grow without end; the requested size is the limit nevertheless."""
    monkeypatch.setattr(judge.pair, "prompts", (("long", tuple(range(2, _N_CTX - 6))),))
    with pytest.raises(EngineRefusedError, match="exceed 64"):
        judge.pair.after(0, speculative=False)


def test_a_quantised_cache_is_rolled_back(mlx: EngineBuild) -> None:
    """The target's cache has the requested type, and the pair goes back in it."""
    refs = {spec.name: ModelRef(spec.on("mlx")) for spec in shipped_models()}
    target = refs["asperf-target"].with_kv(EngineSettings(kv_bits=8))
    draft = refs["asperf-draft"]
    pairing = Pairing(target, draft, k=_K, n_tokens=_N_NEW)
    with _opened(mlx, pairing, target, draft) as pair:
        assert pair.contexts[TARGET].type_k == "8bit"
        found = pair.after(0)
        assert len(found.tokens) == _N_NEW
        assert any(one.accepted < one.drafted for one in found.rounds)
