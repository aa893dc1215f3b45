"""The basis of a finding: a published figure, or a figure that follows from several."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from pytest_asperf.config.table import CheckedTable, unusable
from pytest_asperf.errors import ConfigError
from pytest_asperf.published.records.formulas import FORMULAS

#: Formulas within formulas.
_DEEPEST: Final = 4


@dataclass(frozen=True, slots=True)
class FigureTerm:
    """A published figure; a derived one counts as the result of its inputs."""

    id: str


@dataclass(frozen=True, slots=True)
class PrintedTerm:
    """A published figure as the document prints it, independent of its inputs."""

    id: str


@dataclass(frozen=True, slots=True)
class Variation:
    """The coefficient of variation of the runs behind a published figure, in percent."""

    id: str


@dataclass(frozen=True, slots=True)
class FormulaTerm:
    """The result of a formula of `FORMULAS` on other terms; `unit` replaces its usual one."""

    name: str
    of: tuple[Term, ...]
    unit: str = ""


Term = FigureTerm | PrintedTerm | Variation | FormulaTerm


def parse_term(value: object, place: CheckedTable, key: str) -> Term:
    """The term that a value of a findings file means.

    It is an id; `{ printed = id }`; `{ variation = id }`; or `{ formula = name, of = [terms] }`,
    with a `unit` where it needs one.
    """
    return _parsed(value, place, key, 0)


def ids_of(term: Term) -> Iterator[str]:
    """The ids of the published figures in a term."""
    if isinstance(term, FormulaTerm):
        for inner in term.of:
            yield from ids_of(inner)
    else:
        yield term.id


def row_of(term: Term) -> str:
    """The row of a term's first figure, by which a reader distinguishes terms."""
    return next(ids_of(term)).split("/")[-2]


def _parsed(value: object, place: CheckedTable, key: str, depth: int) -> Term:
    if isinstance(value, str):
        return FigureTerm(_id(value, place, key))
    inner = place.inner(key, value)
    if depth == _DEEPEST:
        raise unusable(str(inner), "a formula in a formula", f"write at most {_DEEPEST} levels")
    if "printed" in inner.values:
        inner.only(("printed",))
        return PrintedTerm(_id(inner.text("printed"), inner, "printed"))
    if "variation" in inner.values:
        inner.only(("variation",))
        return Variation(_id(inner.text("variation"), inner, "variation"))
    inner.only(("formula", "of", "unit"))
    formula = FORMULAS[inner.choice("formula", FORMULAS)]
    of = inner.values.get("of")
    least, most = formula.inputs
    if not isinstance(of, list) or not least <= len(of) <= most:
        count = f"{least}" if least == most else f"{least} to {most}"
        raise ConfigError(
            f"{inner}: of is not {count} terms, and {formula.name} is {formula.meaning}",
            why="the finding is judged by what follows from them",
            remedy=f"name {count} of them, in that order",
        )
    inputs = tuple(_parsed(term, inner, "of", depth + 1) for term in of)
    return FormulaTerm(formula.name, inputs, inner.text("unit"))


def _id(text: str, place: CheckedTable, key: str) -> str:
    if text.count("/") != 3:
        raise unusable(place.at(key), text, "write an id: source-id/table-id/row/column")
    return text
