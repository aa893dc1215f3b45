"""What models make of single texts: scores of a text, outputs after a prompt. Nothing is timed.

The models stay loaded from one text to the next, because a property is tried on many.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from pytest_asperf.engine_process import Worker
from pytest_asperf.errors import ConfigError
from pytest_asperf.measure.draft_target import TARGET, OpenPair, room_after_prompt
from pytest_asperf.measure.loaded_models import LoadedModels
from pytest_asperf.measure.model_locator import require_same_start, same_model, same_tokenizer
from pytest_asperf.measure.prompts import tokenized
from pytest_asperf.measure.speculation import DraftTargetFiles, find_divergences, proofs_of
from pytest_asperf.measure.speculation_result import PromptRun

if TYPE_CHECKING:
    from pytest_asperf.analysis.metrics import ChunkScore
    from pytest_asperf.config.spec import ModelRef, Pairing
    from pytest_asperf.engine_process import EngineBuild
    from pytest_asperf.measure.model_locator import ModelLocator
    from pytest_asperf.measure.results import Provenance
    from pytest_asperf.measure.speculation_result import Divergence

#: Positions of a pair's contexts, so that few prompts need larger ones.
_POSITIONS: Final = 512


@dataclass(frozen=True, slots=True)
class TextScore:
    """The scores of a text's tokens.

    Attributes:
        tokens: the whole text.
        score: of the tokens that were scored; with KLD where there is a baseline.
    """

    tokens: tuple[int, ...]
    score: ChunkScore
    ran: Provenance


@dataclass(frozen=True, slots=True)
class PromptOutput:
    """What follows one prompt, greedily, with the draft and without.

    `divergence` is where the two part; None where they do not.
    """

    run: PromptRun
    divergence: Divergence | None
    ran: tuple[Provenance, ...]


class TextRuns:
    """Runs texts under one build, in processes of its own."""

    def __init__(self, build: EngineBuild, locator: ModelLocator, call_timeout_s: float) -> None:
        self._build = build
        self._locator = locator
        self._call_timeout_s = call_timeout_s
        self._loaded = LoadedModels(build, locator, call_timeout_s, keeps_worker=True)
        self._speculating: _SpeculatingPair | None = None

    def close(self) -> None:
        """End the processes."""
        self._loaded.close()
        self._close_pair()

    def scores(
        self, refs: tuple[ModelRef, ...], text: str | tuple[int, ...], after: int
    ) -> TextScore:
        """The last model's scores of a text's tokens from position `after` on.

        With two models, the first is the baseline of KLD.
        """
        base, *_ = models = [self._locator.locate(ref) for ref in dict.fromkeys(refs)]
        worker = self._loaded.only(models)
        for model in models[1:]:
            same_model(base, model)
            require_same_start(base, self._loaded.facts(base), model, self._loaded.facts(model))
        names = [self._loaded.name(model.ref) for model in models]
        tokens = tuple(worker.tokenize(names[0], text)) if isinstance(text, str) else text
        first = max(0, after - 1)
        if len(tokens) < first + 2:
            raise ConfigError(
                f"scores: {len(tokens)} tokens, of which none is left to score after {first + 1}",
                why="each token is scored by what comes before it",
                remedy="give a longer text, or a smaller `after`",
            )
        self._loaded.require_context(base, len(tokens), "scores")
        score, context = worker.score(names, tokens, first)[names[-1]]
        return TextScore(tokens, score, self._loaded.ran(models[-1], context))

    def output(self, pairing: Pairing, prompt: str) -> PromptOutput:
        """What a pair generates after a prompt, greedily."""
        held = self._speculating
        if held is None or not held.holds(pairing, prompt):
            self._close_pair()
            target = self._locator.locate(pairing.target)
            draft = None
            if pairing.draft is not None:
                draft = same_tokenizer(target, self._locator.locate(pairing.draft))
            worker = Worker(self._build, call_timeout_s=self._call_timeout_s)
            held = self._speculating = _SpeculatingPair(
                worker, DraftTargetFiles(pairing, target, draft)
            )
            held.open(prompt)
        return held.output(prompt)

    def _close_pair(self) -> None:
        if self._speculating is not None:
            self._speculating.worker.close()
        self._speculating = None


class _SpeculatingPair:
    """A target and a draft that stay loaded."""

    def __init__(self, worker: Worker, files: DraftTargetFiles) -> None:
        self.worker = worker
        self._files = files
        self._n_ctx = 0

    def open(self, prompt: str) -> None:
        """Load both, with contexts that hold a prompt and what follows it."""
        pairing = self._files.pairing
        self._described = self.worker.describe()
        self._pair = OpenPair(self.worker, pairing, self._files.target, self._files.draft)
        n_ctx_train = min(facts.n_ctx_train for facts in self._pair.loaded.values())
        room = room_after_prompt(pairing.n_tokens, pairing.k)
        needed = len(self._tokens(prompt, n_ctx_train - room)) + room
        self._n_ctx = max(needed, min(_POSITIONS, n_ctx_train))
        self._pair.open(self._n_ctx, pairing.k)

    def holds(self, pairing: Pairing, prompt: str) -> bool:
        """Whether a prompt of this pairing fits."""
        if pairing != self._files.pairing or not self.worker.alive:
            return False
        n_tokens = len(self.worker.tokenize(TARGET, prompt))
        return n_tokens + room_after_prompt(pairing.n_tokens, pairing.k) <= self._n_ctx

    def output(self, prompt: str) -> PromptOutput:
        """What follows a prompt, by the target alone and with the draft."""
        tokens = self._tokens(prompt, self._n_ctx)
        alone, speculative = (
            self._pair.generate(tokens, speculative=speculative, seed=0)
            for speculative in (False, True)
        )
        run = PromptRun(0, alone, speculative, speculative_first=False)
        parted = find_divergences(self._pair, (("given", tokens),), [run])
        pair = self._pair
        proofs = proofs_of(self._files, self._described, pair.loaded, pair.contexts)
        return PromptOutput(run, parted[0] if parted else None, proofs)

    def _tokens(self, prompt: str, at_most: int) -> tuple[int, ...]:
        ((_, tokens),) = tokenized(self.worker, TARGET, (("given", prompt),), at_most=at_most)
        return tokens
