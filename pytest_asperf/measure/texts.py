"""The work of models on single texts: scores, outputs after a prompt. Nothing is timed.

The models stay loaded from one text to the next, because a property is tried on many.
"""

from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from typing import Final

from pytest_asperf.analysis.metrics import ChunkScore
from pytest_asperf.config.spec import Pairing
from pytest_asperf.errors import ConfigError
from pytest_asperf.measure.drafted_target import TARGET, DraftedTarget, room_after_prompt
from pytest_asperf.measure.experiment import MachineLease, SharedProcess
from pytest_asperf.measure.feeding import tokenized
from pytest_asperf.measure.results import Provenance
from pytest_asperf.measure.running_arms import MODEL, RunningArm
from pytest_asperf.measure.running_build import RunningBuild, open_together
from pytest_asperf.measure.speculation_result import Divergence, PromptRun
from pytest_asperf.modelfiles.locate import require_same_start, same_model

#: Positions of a pair's contexts, so that few prompts need larger ones.
_POSITIONS: Final = 512


@dataclass(frozen=True, slots=True)
class TextScore:
    """The scores of a text's tokens."""

    tokens: tuple[int, ...]  #: the whole text
    score: ChunkScore  #: of the tokens that were scored; with KLD if there is a baseline
    ran: Provenance


@dataclass(frozen=True)
class ScoresExperiment(SharedProcess):
    """Scores a text's tokens from position `after` on with the variant's last model.

    With two models, the first is the baseline of KLD.
    """

    text: str | tuple[int, ...]
    after: int

    def run(self, lease: MachineLease) -> TextScore:
        """Score; a ModelError if the two are not quantizations of one model."""
        (side,) = lease.sides
        # Settings distinguish loads of one model spec that exist at the same time.
        named = {f"{arm.name} {arm.settings.as_dict()}": arm for arm in side}
        start = partial(RunningBuild, side[0].build.engine, lease)
        build = lease.kept.get("texts", lambda _: True, start).hold(named)
        (first_name, base), *others = named.items()
        for name, arm in others:
            same_model(base.model, arm.model)
            have_bos = build.begins_with_bos(first_name), build.begins_with_bos(name)
            require_same_start((base.model, have_bos[0]), (arm.model, have_bos[1]))
        worker, names, tokens = build.worker, list(named), self.text
        if isinstance(tokens, str):
            tokens = tuple(worker.tokenize(names[0], tokens))
        first = max(0, self.after - 1)
        if len(tokens) < first + 2:
            raise ConfigError(
                f"scores: {len(tokens)} tokens, of which none is left to score after {first + 1}",
                why="each token is scored by what comes before it",
                remedy="give a longer text, or a smaller `after`",
            )
        build.require_context(names[0], len(tokens), "scores")
        score, context = worker.score(names, tokens, first)[names[-1]]
        return TextScore(tokens, score, build.proof(names[-1], context))


@dataclass(frozen=True, slots=True)
class PromptOutput:
    """The greedy text after one prompt, with the draft and without.

    `divergence` is where the two part; None if they do not.
    """

    run: PromptRun
    divergence: Divergence | None
    ran: tuple[Provenance, ...]


@dataclass(frozen=True)
class PromptExperiment(SharedProcess):
    """Generates after a prompt, greedily, by the target alone and with the draft."""

    pairing: Pairing
    prompt: str

    def run(self, lease: MachineLease) -> PromptOutput:
        """Generate; a ModelError if the draft's tokenizer is another, or the prompt is too long."""
        pair = lease.kept.get("prompts", self._fits, partial(self._start, lease))
        pair.prompts = tokenized(pair.worker, TARGET, self._given, at_most=pair.n_ctx)
        alone, speculative = (pair.after(0, speculative=s) for s in (False, True))
        run = PromptRun(0, alone, speculative, speculative_first=False)
        parted = pair.divergences([run])
        return PromptOutput(run, parted[0] if parted else None, pair.ran_both())

    @property
    def _given(self) -> tuple[tuple[str, str]]:
        return (("given", self.prompt),)

    def _start(self, lease: MachineLease) -> DraftedTarget:
        """Load both, with contexts that contain the prompt and its reply."""
        pairing = self.pairing
        pair = DraftedTarget(lease.sides[0], pairing, lease)
        room = room_after_prompt(pairing.n_tokens, pairing.k)
        with pair.ended_on_error():
            at_most = pair.n_ctx_train - room
            ((_, tokens),) = tokenized(pair.worker, TARGET, self._given, at_most=at_most)
            needed = len(tokens) + room
            pair.open(max(needed, min(_POSITIONS, pair.n_ctx_train)), pairing.k)
        return pair

    def _fits(self, pair: DraftedTarget) -> bool:
        if pair.pairing != self.pairing:
            return False
        n_tokens = len(pair.worker.tokenize(TARGET, self.prompt))
        return n_tokens + room_after_prompt(self.pairing.n_tokens, self.pairing.k) <= pair.n_ctx


@dataclass(frozen=True)
class Outputs:
    """The outputs of two variants, baseline first."""

    texts: tuple[tuple[str, str], ...]  #: after each prompt
    again: str  #: the baseline's second output after the first prompt
    ran: tuple[Provenance, Provenance]  #: the run record


@dataclass(frozen=True, slots=True)
class OutputsExperiment:
    """Generates with two variants after the same prompts; nothing is timed."""

    prompts: tuple[str, ...]
    n_tokens: int

    def run(self, lease: MachineLease) -> Outputs:
        """The outputs of both; EngineError if an engine shows no output, or died."""
        with ExitStack() as stack:
            arms = open_together(stack, [partial(RunningArm, arm, lease) for (arm,) in lease.sides])
            texts = []
            for number, prompt in enumerate(self.prompts):
                lease.progress("outputs", number, len(self.prompts))
                texts.append(tuple(arm.worker.output(MODEL, prompt, self.n_tokens) for arm in arms))
            again = arms[0].worker.output(MODEL, self.prompts[0], self.n_tokens)
            ran = arms[0].ran(None), arms[1].ran(None)
        return Outputs(tuple((one, other) for one, other in texts), again, ran)
