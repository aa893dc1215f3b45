"""The scores of one text's tokens, under any settings."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar

from pytest_asperf.api.measurement_context import NoTruthValue
from pytest_asperf.config.catalogue import at_level
from pytest_asperf.config.engine_settings import parse_settings
from pytest_asperf.errors import ConfigError, shown
from pytest_asperf.measure.texts import ScoresExperiment
from pytest_asperf.verdicts.gate import LARGEST_HEALTHY_KLD, MEAN_HEALTHY_KLD

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pytest_asperf.api.measurement_context import ModelUnderTest


@dataclass(frozen=True)
class TokenScores(NoTruthValue):
    """The scores of one text's tokens.

    Attributes:
        tokens: the text's token ids.
        nll: of each scored token, in nats.
        kld: of each scored token's distribution from the test's own model, in nats; empty without
            a quantization or settings.
        ran: what ran, as a verdict states it.
    """

    tokens: tuple[int, ...]
    nll: tuple[float, ...]
    kld: tuple[float, ...]
    ran: tuple[tuple[str, str], ...]

    example: ClassVar = "assert model.scores(text, n_ubatch=1).agrees"

    @property
    def mean_kld(self) -> float:
        """Mean KLD, nats."""
        return sum(self.kld) / max(1, len(self.kld))

    @property
    def agrees(self) -> bool:
        """True if the logits are the same within the bounds that healthy builds keep.

        A mean KLD below 0.02 nats, and no token above 1 nat: the bounds of `gate("logits")`.
        """
        return (
            self.mean_kld < MEAN_HEALTHY_KLD and max(self.kld, default=0.0) <= LARGEST_HEALTHY_KLD
        )


def score(
    variant: ModelUnderTest,
    text: str | Sequence[int],
    after: int,
    quant: str | None,
    settings: Mapping[str, object],
) -> TokenScores:
    """Score a text's tokens under a quantization and settings; as of `model.scores`."""
    measurement, ref = variant.measurement, variant.ref
    measurement.require_live()
    measurement.at_end(measurement.runner.close)
    other = ref
    if quant is not None:
        other = at_level(replace(ref, level=None), quant, where="scores: quant")
    changed = parse_settings(settings, where="scores")
    other = replace(other, spec=other.spec.with_settings(changed))
    given = text if isinstance(text, str) else _token_ids(text)
    first, refs = _position(after), (ref, other)
    found = measurement.runner.measure(tuple(dict.fromkeys(refs)), ScoresExperiment(given, first))
    return TokenScores(found.tokens, found.score.nll, found.score.kld, found.ran.rows())


def _token_ids(given: Sequence[object]) -> tuple[int, ...]:
    tokens = tuple(token for token in given if type(token) is int and token >= 0)
    if len(tokens) != len(given):
        raise ConfigError(
            f"scores: {shown(given, 80)} is not a text",
            why="a model reads texts and token ids",
            remedy="give a str, or the tokens of an earlier call",
        )
    return tokens


def _position(after: object) -> int:
    if type(after) is not int or after < 0:
        raise ConfigError(
            f"scores: after={shown(after, 80)} is not a position",
            why="tokens from there on are scored",
            remedy="give a whole number from 0",
        )
    return after
