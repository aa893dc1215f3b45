"""The verdict on the vectors of texts in two builds."""

from dataclasses import replace
from typing import Final

from pytest_asperf.analysis import guards
from pytest_asperf.analysis.combined_verdict import joined
from pytest_asperf.analysis.facts import ComparedVariants
from pytest_asperf.analysis.limit_verdict import judge_limit
from pytest_asperf.analysis.results import SameVectors
from pytest_asperf.analysis.stats.estimate import RATIO, SHARE, Estimate
from pytest_asperf.analysis.verdict import Verdict, guarded
from pytest_asperf.measure.embeddings import EmbeddingsComparison
from pytest_asperf.verdicts.paired import build_subject

#: Cosine distance that is accepted: absolutely, and as a share of the median distance between two
#: texts, as vectors of different texts may be alike. In healthy builds the distance was at most
#: 0.0017, and 0.3 % of that between texts (docs/benchmarks.md).
_MOST_DISTANCE: Final = 0.005
_MOST_SHARE: Final = 0.01
#: Change of a vector's length that is accepted. In healthy builds it was at most 1.5 %, and 2.4 %
#: or more with a q4_0 cache (docs/benchmarks.md).
_MOST_STRETCH: Final = 0.02
#: Change of one number of the vectors that is accepted, as a share of its spread over texts. In
#: healthy builds it was at most 25 %, and it is 100 % or more of a number that is dead.
_MOST_UNLIKE: Final = 0.5


def embeddings_verdict(comparison: EmbeddingsComparison) -> Verdict:
    """The verdict on the candidate's vectors: against the baseline's, and alone against in a batch.

    Nothing is sampled: the vectors of the same texts are computed, and the worst text decides. The
    candidate's batches may differ from its single texts by twice as much as the baseline's do.
    """
    base, candidate = comparison.base, comparison.candidate
    subject = replace(
        build_subject("embeddings of", comparison.ran, "other vectors"),
        if_failed="an index that was made with the baseline does not fit the candidate's vectors: "
        "look for another pooling, normalization, tokenizer or kernel",
    )
    limit = min(_MOST_DISTANCE, _MOST_SHARE * base.between)
    most = guards.drift_limit(limit, base.drift)
    shared = None
    if comparison.drift <= limit:
        drifts = {"the distance in a batch from alone": (candidate.drift, base.drift, most)}
        shared = guards.baseline_drifts(drifts)
    parts = (
        ("smallest cosine from the baseline", comparison.drift, limit),
        ("in a batch from alone", candidate.drift, most),
    )
    judged = [
        (label, judge_limit(Estimate.exact(1 - apart, RATIO), ">=", 1 - accepted, subject))
        for label, apart, accepted in parts
    ]
    stretch = Estimate.exact(comparison.stretch, SHARE)
    judged.append(("change of length", judge_limit(stretch, "<=", _MOST_STRETCH, subject)))
    unlike = Estimate.exact(comparison.unlike, SHARE)
    judged.append(("change of one number", judge_limit(unlike, "<=", _MOST_UNLIKE, subject)))
    pooled = tuple(
        f"{side}: pooling {ran.context.pooling}"
        for side, ran in zip(("baseline", "candidate"), comparison.ran, strict=True)
        if ran.context and ran.context.pooling
    )
    verdict = replace(
        joined(judged, subject),
        result=SameVectors(drift=base.drift, between=base.between),
        details=pooled,
        compared=ComparedVariants(ran=(comparison.ran[0].facts(), comparison.ran[1].facts())),
    )
    return guarded(verdict, [shared] if shared else [])
