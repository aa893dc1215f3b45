"""Variants of a model: layers, experts or a recurrent state added to it."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final, Literal

from pytest_asperf.errors import ConfigError, shown, suggest

VariantKind = Literal["layers", "experts", "hybrid", "recurrent"]

_VARIANT: Final = re.compile(r"(?P<kind>[a-z]+)(=(?P<n>[1-9]\d{0,2}))?")

#: Kinds of variants with the number that each has where none is named; None where one must be.
_VARIANTS: Final[dict[VariantKind, int | None]] = {
    "layers": None,
    "experts": 8,
    "hybrid": 0,
    "recurrent": 2,
}


@dataclass(frozen=True, slots=True)
class Variant:
    """A change of a model that keeps what it computes and not what that costs.

    Attributes:
        kind: `layers`, n more layers that add nothing; `experts`, n copies of each feed-forward
            part, of which one is used for a token; `hybrid`, a recurrent part that adds nothing;
            `recurrent`, n layers of random weights, which is another function.
    """

    kind: VariantKind
    n: int


def parse_variant(text: str, *, where: str) -> Variant:
    """Read the text after the plus of `asperf-target+layers=8`."""
    match = _VARIANT.fullmatch(text)
    for kind, default in _VARIANTS.items():
        if match and match["kind"] == kind and bool(match["n"]) <= (default != 0):
            n = int(match["n"]) if match["n"] else default
            if n is not None:
                return Variant(kind, n)
    raise ConfigError(
        f"{where}: {shown(text, 80)} is not a variant of a model"
        f"{suggest(text.partition('=')[0], _VARIANTS)}",
        remedy="use layers=N, experts=N, hybrid or recurrent=N, as in asperf-target+layers=8",
    )
