"""The vectors of the same texts in two builds, and in each build alone and in a batch."""

import time
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations
from statistics import median
from typing import Final

import numpy as np

from pytest_asperf.engine_process.ways import Vectors, embedded
from pytest_asperf.errors import ModelError
from pytest_asperf.measure.experiment import Arm, MachineLease, OfAnyModel
from pytest_asperf.measure.results import Provenance
from pytest_asperf.measure.running_arms import MODEL, RunningArm

#: Bytes of the texts, used in rotation: encoders have a context of 512 tokens, which are bytes or
#: longer, and a batch contains texts of several lengths. The first is as short as a search, and
#: every sixth text fills the context.
_LENGTHS: Final = (9, 40, 120, 240, 480)
#: Tokens that a tokenizer adds to a text, at most.
_ADDED: Final = 4
#: Tokens of llama.cpp's usual physical batch, which contains all of a text.
_MOST_TOKENS: Final = 512
#: Characters of text for each wanted token; more than most tokenizers need for one.
_CHARACTERS_PER_TOKEN: Final = 8
_N_TEXTS: Final = 12
#: A number of the vectors that varies less between texts, as a share of their median, counts as
#: varying so much: its rounding would be all of it.
_LEAST_SPREAD: Final = 0.1


@dataclass(frozen=True, slots=True)
class EmbeddedTexts:
    """The vectors of one build."""

    alone: Vectors  #: of each text, computed by itself
    together: Vectors  #: of the same texts in batches
    ran: Provenance  #: the run record

    @property
    def drift(self) -> float:
        """The largest distance of a text's vector in a batch from that alone."""
        return _largest(self.alone, self.together)

    @property
    def between(self) -> float:
        """The median distance between the vectors of two texts."""
        return median(distance(a, b) for a, b in combinations(self.alone, 2))


@dataclass(frozen=True, slots=True)
class EmbeddingsComparison:
    """The vectors of the same texts from two builds."""

    base: EmbeddedTexts  #: of the baseline
    candidate: EmbeddedTexts  #: of the candidate
    elapsed_s: float  #: its duration, loads included

    @property
    def ran(self) -> tuple[Provenance, Provenance]:
        """Run record of each build, baseline first."""
        return self.base.ran, self.candidate.ran

    @property
    def drift(self) -> float:
        """The largest distance of a text's vector from the baseline's; 2 if they differ in size."""
        return _largest(self.base.alone, self.candidate.alone)

    @property
    def unlike(self) -> float:
        """The largest change of a number of the vectors, as a share of its spread over the texts.

        Both are root mean squares. It is 1 if a number no longer depends on the text, which moves
        vectors of many numbers little.
        """
        base, candidate = np.asarray(self.base.alone), np.asarray(self.candidate.alone)
        if base.shape != candidate.shape:
            return 1.0
        spread = base.std(axis=0)
        changes = np.sqrt(np.mean((candidate - base) ** 2, axis=0))
        return float(np.max(changes / np.maximum(spread, _LEAST_SPREAD * np.median(spread))))

    @property
    def stretch(self) -> float:
        """The largest change of a vector's length, alone or in a batch, as a share.

        Cosines are equal for any length, and products of vectors are not.
        """
        sides = (
            np.linalg.norm([*side.alone, *side.together], axis=1)
            for side in (self.candidate, self.base)
        )
        return float(np.max(np.abs(np.divide(*sides) - 1)))


@dataclass(frozen=True, slots=True)
class EmbeddingsExperiment(OfAnyModel):
    """Embeds the same texts in both builds, each alone and in batches."""

    def run(self, lease: MachineLease) -> EmbeddingsComparison:
        """Embed; an EngineError if a build's vectors do not depend on the texts."""
        began = time.monotonic()
        lease.progress("embeddings", 0, 1)
        base, candidate = (self._embedded(arm, lease) for (arm,) in lease.sides)
        return EmbeddingsComparison(base, candidate, time.monotonic() - began)

    def attempt(self, lease: MachineLease) -> None:
        """Embed in the lease's only variant."""
        ((arm,),) = lease.sides
        self._embedded(arm, lease)

    def _embedded(self, arm: Arm, lease: MachineLease) -> EmbeddedTexts:
        with RunningArm(arm, lease) as running:
            worker, texts = running.worker, texts_to_embed(lease, running)
            together, _ = embedded(worker, MODEL, texts, together=True)
            alone, context = embedded(worker, MODEL, texts, together=False)
            return EmbeddedTexts(alone, together, running.ran(context))


def texts_to_embed(lease: MachineLease, running: RunningArm) -> list[str]:
    """Pieces of a corpus of several lengths, spread over it, that all builds have room for."""
    corpus = lease.corpus
    step = len(corpus.text) // _N_TEXTS
    batches = [arm.settings.n_ubatch for (arm,) in lease.sides]
    room = min([_MOST_TOKENS, running.loaded.n_ctx_train, *filter(None, batches)]) - _ADDED
    sizes = [min(length, room) for length in _LENGTHS]
    if running.loaded.served is None:
        sizes.append(min(step, _CHARACTERS_PER_TOKEN * room))
    texts = []
    for n in range(_N_TEXTS):
        size = sizes[n % len(sizes)]
        piece = corpus.text[n * step : (n + 1) * step].lstrip().encode()[:size]
        text = piece.decode(errors="ignore").strip()
        texts.append(text if size <= room else _fitting(running, text, room))
    if step < max(_LENGTHS) or len({*texts, ""}) <= _N_TEXTS:
        raise ModelError(
            f"the corpus {corpus.path} has no {_N_TEXTS} different texts",
            why="vectors that are equal for all texts would not be noticed",
            remedy=f"name a corpus of at least {_N_TEXTS * max(_LENGTHS)} characters",
        )
    return texts


def _fitting(running: RunningArm, text: str, room: int) -> str:
    """The beginning of a text that has so many tokens, or hardly fewer."""
    while (n := len(running.worker.tokenize(MODEL, text))) > room:
        text = text[: len(text) * room // n]
    return text


def distance(one: Sequence[float], other: Sequence[float]) -> float:
    """The cosine distance of two vectors, 1 less their cosine: 0 to 2."""
    a, b = np.asarray(one), np.asarray(other)
    cosine = float(a @ b / (np.linalg.norm(a) * np.linalg.norm(b)))
    return max(0.0, 1 - cosine)


def _largest(ones: Vectors, others: Vectors) -> float:
    if len(ones[0]) != len(others[0]):
        return 2.0
    return max(distance(a, b) for a, b in zip(ones, others, strict=True))
