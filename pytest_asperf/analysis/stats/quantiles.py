"""Quantiles that intervals are made of, and the confidence that several intervals share."""

from __future__ import annotations

import math

from scipy.special import ndtri, stdtrit  # type: ignore[import-untyped]  # scipy ships no types


def z_quantile(confidence: float) -> float:
    """Half-width of a two-sided normal interval, in standard errors."""
    return float(ndtri(0.5 + checked_confidence(confidence) / 2))


def shared_confidence(confidence: float, comparisons: int) -> float:
    """Confidence of each of several intervals that share one error probability (Bonferroni)."""
    if comparisons < 1:
        raise ValueError(f"comparisons must be at least 1, not {comparisons}")
    return 1 - (1 - checked_confidence(confidence)) / comparisons


def t_quantile(degrees: float, confidence: float) -> float:
    """Half-width of a two-sided Student's t interval, in standard errors."""
    return float(stdtrit(degrees, 0.5 + checked_confidence(confidence) / 2))


def t_half_width(error: float, degrees: float, confidence: float) -> float:
    """Half-width of a two-sided Student's t interval; infinite without a degree of freedom."""
    return t_quantile(degrees, confidence) * error if degrees > 0 else math.inf


def checked_confidence(confidence: float) -> float:
    """The confidence, or a ValueError unless it is between 0 and 1."""
    if not 0 < confidence < 1:
        raise ValueError(f"confidence must be between 0 and 1, not {confidence}")
    return confidence
