"""A target and a draft in one process, and the operations that need both."""

from collections.abc import Iterable, Sequence
from functools import cached_property
from pathlib import Path
from typing import Final

from pytest_asperf.analysis import guards
from pytest_asperf.config.engines import SERVER_ENGINES
from pytest_asperf.config.spec import Pairing
from pytest_asperf.config.workload import Workload
from pytest_asperf.engine_process import ContextFacts, Margin, StepCosts, WorkerPair
from pytest_asperf.engine_process.pair import likeliest_tokens, served_generation
from pytest_asperf.errors import Advice, UnfitError
from pytest_asperf.measure.experiment import Arm, MachineLease
from pytest_asperf.measure.feeding import Prompts, read_prompts, tokenized
from pytest_asperf.measure.results import Provenance
from pytest_asperf.measure.running_arms import ArmCache, SuiteReply, TimedArm, equal_parts
from pytest_asperf.measure.speculation_result import Divergence, PromptRun
from pytest_asperf.measure.validity import require_valid
from pytest_asperf.modelfiles.locate import require_draft
from pytest_asperf.worker.speculation import Generation, Round

#: The models' names inside the worker.
TARGET: Final = "target"
DRAFT: Final = "draft"
#: Tokens that warm a context up, several rounds of any usual k.
_WARM_UP_TOKENS: Final = 16
#: A part of a reply has at least so many tokens, as its last round may draft fewer than the others.
_LEAST_PART: Final = 16


def room_after_prompt(n_tokens: int, k_max: int) -> int:
    """Positions after the longest prompt that a pair's contexts need.

    A context contains the decoded tokens. After a prompt of P tokens and n generated ones that is:

    - the target's runs, with a draft or alone: P + n - 1. A round that begins with a text of L
      tokens feeds the last one and d drafted ones, d <= P + n - L - 1, so that positions up to
      L + d <= P + n - 1 are filled. The last token of the output is never fed.
    - the draft in a run: the text and all that it drafts but the last, L + d - 1 <= P + n - 2.
    - the draft by itself: P + n - 1, as the target alone.
    - single batches after half of the output: P + n // 2 + k_max + 1. The target's batch has up to
      k_max + 1 tokens; the draft catches up with 2 and drafts k - 1 more, which are as many.
    - a batch of a round that is repeated to compare logits: the round's own length.

    Acceptance does not change this length: rejected tokens are dropped, and a replay from a
    checkpoint ends at the last accepted token.
    """
    return max(n_tokens - 1, n_tokens // 2 + k_max + 1)


class DraftedTarget(TimedArm):
    """A target and a draft (none for lookup) of one build, with contexts of their own.

    Args:
        side: the target, and a draft that is a model.
        pairing: the models and the text.
        lease: has the deadline of one call to the engine.
        cache: files from earlier processes of the variant.

    Attributes:
        prompts: category and tokens of each, once they are opened.
        contexts: the resolved contexts, by `TARGET` and `DRAFT`.
        drafts: whether its runs have the draft.
        seed: of its samples.
        left: results for later processes of the variant.
    """

    timed = TARGET

    def __init__(
        self,
        side: Sequence[Arm],
        pairing: Pairing,
        lease: MachineLease,
        cache: ArmCache | None = None,
    ) -> None:
        target, *drafts = side
        for draft in drafts:
            require_draft(target.model, draft.model)
        super().__init__(target.build.engine, lease, cache.folder if cache else None)
        self.pairing, self.drafts, self.seed = pairing, True, 0
        self.left = cache or ArmCache(Path())
        self.prompts: Prompts = ()
        self.contexts: dict[str, ContextFacts] = {}
        self.n_ctx = 0
        self._pair = WorkerPair(self.worker, "pair", TARGET, DRAFT if drafts else None)
        self._draft_alone = WorkerPair(self.worker, "draft alone", DRAFT, None) if drafts else None
        with self.ended_on_error():
            self.hold(dict(zip((TARGET, DRAFT), side, strict=False)))

    def open(self, n_ctx: int, k_max: int) -> None:
        """Open contexts of `n_ctx` tokens in which a round may draft `k_max`.

        An EngineRefusedError of kind `rollback` means that one of them cannot be rolled back.
        """
        self.n_ctx = n_ctx
        self.contexts = self._pair.open(n_ctx, k_max, self.pairing.rollback)
        if self._draft_alone:
            self._draft_alone.open(n_ctx, 1, "auto")

    def open_suite(self, k_max: int) -> None:
        """Open contexts that contain each prompt and its reply.

        No round may draft more than `k_max` tokens.
        """
        pairing = self.pairing
        room = room_after_prompt(pairing.n_tokens, k_max)
        at_most = self.n_ctx_train - room
        if at_most < 2:
            raise UnfitError(
                f"{pairing.label}: {pairing.n_tokens} tokens leave no room for a prompt in a "
                f"context of {self.n_ctx_train}",
                why="what a model does beyond its context is not what its users see",
                remedy="generate fewer with n_tokens",
            )
        known = self.left.prompts
        if at_most not in known:
            texts = read_prompts(pairing.prompts)
            known[at_most] = tokenized(self.worker, TARGET, texts, at_most=at_most)
        self.prompts = known[at_most]
        longest = max(len(tokens) for _, tokens in self.prompts)
        self.open(longest + room, k_max)

    @property
    def n_ctx_train(self) -> int:
        """The longest context that both models were trained on."""
        return min(facts.n_ctx_train for facts in self._loaded.values())

    def ran(self, context: ContextFacts | None) -> Provenance:
        """The run record of the target; both models' are left for the result."""
        self.left.ran[:] = self.ran_both()
        self.left.contexts.update(self.contexts)
        return super().ran(context)

    def ran_both(self) -> tuple[Provenance, ...]:
        """The run record of the target, and of a draft that is a model."""
        return self.proofs(self.contexts)

    @property
    def is_kept(self) -> bool:
        """True if no further process may be started: a remote server has one client."""
        return super().is_kept or any(facts.remote for facts in self._loaded.values())

    def end(self) -> None:
        """Free models on another machine, and note the link's speed at the end."""
        if any(facts.remote for facts in self._loaded.values()):
            if self.contexts:
                self._pair.close()
                if self._draft_alone:
                    self._draft_alone.close()
            self.note_links()

    def after(
        self, number: int, *, speculative: bool = True, seed: int = 0, at_most: int | None = None
    ) -> Generation:
        """Generate after a prompt, by its number, with the draft or by the target alone."""
        return self._pair.generate(
            self.prompts[number][1],
            n_new=self._n_new(at_most),
            k=self.pairing.k if speculative else 0,
            temperature=self.pairing.temperature,
            seed=seed,
        )

    def _n_new(self, at_most: int | None) -> int:
        n_tokens = self.pairing.n_tokens
        return n_tokens if at_most is None else min(at_most, n_tokens)

    def fed(self, workload: Workload) -> Prompts:  # noqa: ARG002  # there is one
        """The prompts."""
        return self.prompts

    def most_parts(self, workload: Workload) -> int:
        """The most parts of a reply that is known, in a memory that can drop its end."""
        drops_end = all(context.rollback == "trim" for context in self.contexts.values())
        is_divisible = self.is_divisible and drops_end and self.left.outputs
        return equal_parts(workload.n_tokens, _LEAST_PART) if is_divisible else 1

    def run(self, workload: Workload, turn: int, parts: int) -> SuiteReply:  # noqa: ARG002  # as above
        """Time the reply to one prompt, or the next part of it."""
        done = self._reply(turn, parts)
        self.left.replies[turn] = done
        return SuiteReply(len(done.tokens), done.elapsed_ns, self.contexts.get(TARGET))

    def warm_up(self, workload: Workload, turn: int, parts: int) -> None:  # noqa: ARG002  # as above
        """Generate a few tokens: their batches are those of a whole generation."""
        self._reply(turn, parts, at_most=_WARM_UP_TOKENS)

    settle = warm_up

    def _reply(self, turn: int, parts: int, at_most: int | None = None) -> Generation:
        """The reply to the next prompt; of parts, the next one, after those that are known."""
        seed = self.seed + turn
        number, part = divmod(turn, parts)
        number %= len(self.prompts)
        if parts == 1:
            return self.after(number, speculative=self.drafts, seed=seed, at_most=at_most)
        pairing = self.pairing
        n_new = pairing.n_tokens // parts
        return self._pair.generate(
            (*self.prompts[number][1], *self.left.outputs[number][: part * n_new]),
            # Half of a part: it is as short as a warm-up of whole replies.
            n_new=min(n_new // 2, at_most) if at_most else n_new,
            k=pairing.k if self.drafts else 0,
            temperature=pairing.temperature,
            seed=seed,
        )

    def costs(self, run: PromptRun, batches: Sequence[int]) -> StepCosts:
        """Time the target's batches, and the draft's steps, in the middle of an output.

        The first of the batches, which are given by their positions, is a warm-up.
        """
        output = run.alone.tokens
        text = (*self.prompts[run.prompt][1], *output[: len(output) // 2])
        return self._pair.costs(text, batches, self.pairing.k)

    def draft_alone(self, prompt: int) -> StepCosts:
        """Time the draft generating by itself, as the target alone does; nothing for a lookup."""
        if self._draft_alone is None:
            return StepCosts({}, {})
        n_new, temperature = self.pairing.n_tokens, self.pairing.temperature
        _, tokens = self.prompts[prompt]
        run = self._draft_alone.generate(tokens, n_new=n_new, k=0, temperature=temperature, seed=0)
        return StepCosts({}, {}, (run,))

    def places(self, prompt: int, *, seeds: Sequence[int], rule: str) -> list[float]:
        """Sample with the draft, and place each token in the target's own distribution."""
        return self._pair.places(
            self.prompts[prompt][1],
            n_new=self.pairing.n_tokens,
            k=self.pairing.k,
            temperature=self.pairing.temperature,
            seeds=seeds,
            rule=rule,
        )

    def divergences(
        self, runs: Iterable[PromptRun], known: dict[tuple[int, ...], Divergence] | None = None
    ) -> tuple[Divergence, ...]:
        """The places at which greedy outputs of both diverge, without repeats.

        The target scores how near to a tie each divergence is, unless it is known.
        """
        found = {} if known is None else known
        for run in runs:
            position = guards.first_divergence(run.alone.tokens, run.speculative.tokens)
            if position is None:
                continue
            tokens = (run.alone.tokens[position], run.speculative.tokens[position])
            key = (run.prompt, position, *tokens)
            if key not in found:
                found[key] = self._divergence(run, position, tokens)
        return tuple(found.values())

    def _divergence(self, run: PromptRun, position: int, tokens: tuple[int, int]) -> Divergence:
        emitted = 0
        for round_ in run.speculative.rounds:
            if emitted + round_.emitted > position:
                break
            emitted += round_.emitted
        batch = round_.drafted + 1
        margin = self._pair.margin(
            (*self.prompts[run.prompt][1], *run.alone.tokens[:position]),
            batch=batch,
            behind=batch - 1 - (position - emitted),
            tokens=tokens,
        )
        return Divergence(run.prompt, position, tokens, margin)


class DraftingServer(DraftedTarget):
    """A server that drafts by itself: with a draft that its options name, or from the text.

    Without the draft, its tokens are the likeliest ones after each beginning of its own reply, one
    request for each: no further server is started.
    """

    @cached_property
    def _outputs(self) -> dict[int, list[int]]:
        return {}

    @cached_property
    def _gaps(self) -> dict[int, list[float]]:
        return {}

    def open(self, n_ctx: int, k_max: int) -> None:  # noqa: ARG002  # the server's own
        """Have the server answer once: its context is its own."""
        self.n_ctx = n_ctx
        self.after(0, at_most=1)

    def after(
        self,
        number: int,
        *,
        speculative: bool = True,
        seed: int = 0,  # noqa: ARG002  # a server's replies are greedy
        at_most: int | None = None,
    ) -> Generation:
        """The reply to a prompt, by its number; or the likeliest tokens instead of its own."""
        prompt = self.prompts[number][1]
        if not speculative:
            tokens, self._gaps[number] = likeliest_tokens(
                self.worker, TARGET, prompt, self._outputs[number]
            )
            return Generation(tokens, 0, [])
        done, gaps_ns, self.contexts[TARGET] = served_generation(
            self.worker, TARGET, prompt, self._n_new(at_most)
        )
        counts = (done.drafted, done.accepted, done.emitted)
        require_valid(self.pairing.label, filter(None, [guards.false_drafts(*counts, gaps_ns)]))
        self._outputs[number] = done.tokens
        return done

    def _divergence(self, run: PromptRun, position: int, tokens: tuple[int, int]) -> Divergence:
        gap = self._gaps[run.prompt][position]
        return Divergence(run.prompt, position, tokens, Margin((0.0, gap), (0.0, gap)))


class DraftingProgram(DraftedTarget):
    """A program that speculates: it tokenizes its prompts, and opens its contexts, in each run.

    A generation is one round, and its tokens are the characters of its text.
    """

    def open_suite(self, k_max: int) -> None:  # noqa: ARG002  # the program's own
        """Read the prompts."""
        self._texts = read_prompts(self.pairing.prompts)
        self.prompts = tuple((category, ()) for category, _ in self._texts)

    def after(
        self,
        number: int,
        *,
        speculative: bool = True,
        seed: int = 0,  # noqa: ARG002  # greedy
        at_most: int | None = None,
    ) -> Generation:
        """Run the program on a prompt, by its number; only with the draft."""
        _, text = self._texts[number]
        if not speculative:
            raise UnfitError(
                f"{self.worker.build.engine} generates with the draft only",
                remedy=Advice("compare with the target alone on llama_cpp or mlx", "engine"),
            )
        n_new = self._n_new(at_most)
        ran = self.worker.speculate(TARGET, DRAFT, text, n_new=n_new, k=self.pairing.k)
        whole = Round(ran.n_drafted, ran.n_accepted or 0, ran.n_emitted, 0, ran.elapsed_ns, 0)
        return Generation(list(map(ord, ran.text)), ran.elapsed_ns, [whole])


def start_drafted(
    side: Sequence[Arm], pairing: Pairing, lease: MachineLease, cache: ArmCache | None = None
) -> DraftedTarget:
    """A process with both models and its prompts, of the kind that the engine needs."""
    engine = side[0].build.engine
    kind = DraftingProgram if engine.tools else DraftedTarget
    if engine.engine in SERVER_ENGINES:
        kind = DraftingServer
    drafted = kind(side, pairing, lease, cache)
    with drafted.ended_on_error():
        drafted.open_suite(pairing.k)
    return drafted
