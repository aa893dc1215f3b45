"""The nightly run: what ran, what changed since the last one, and which nights are missing."""

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from pytest_asperf.records.kinds import VerdictRecord, ran_of
from pytest_asperf.store.figures import LOG_RATIO, figures_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pytest_asperf.config.spec import Build
    from pytest_asperf.records.report import Report
    from pytest_asperf.store.figures import SeriesValue

_DAY_S: Final = 86_400.0
#: A night counts as missing if the one before is longer ago than this.
_LATE: Final = 1.5


@dataclass(frozen=True, slots=True)
class FactChange:
    """A fact that is otherwise than in the night before."""

    label: str
    before: str
    now: str

    def __str__(self) -> str:
        return f"{self.label}: {self.before} -> {self.now}"


def facts_of(report: Report, power: str) -> dict[str, str]:
    """The facts that a nightly result depends on, by name.

    Args:
        report: the report of tonight's pairs with the anchor.
        power: the machine's power mode, in words.
    """
    figures = figures_of(report, "the night")
    facts: dict[str, list[str]] = {}
    for figure in figures:
        if figure.key.unit != LOG_RATIO:
            continue
        for label, text in figure.provenance:
            facts.setdefault(label, []).append(text)
        facts.setdefault("model", []).append(_model(figure))
        facts.setdefault("settings", []).append(f"{figure.key.metric} {figure.key.settings}")
        facts.setdefault("anchor", []).append(figure.key.anchor)
    told = {label: ", ".join(dict.fromkeys(texts)) for label, texts in facts.items()}
    return {**told, "power mode": power}


def _model(figure: SeriesValue) -> str:
    hashes = "/".join(part[:12] for part in figure.key.model_sha256.split("/"))
    return f"{figure.key.model} {hashes}"


def changes_between(before: Mapping[str, str], now: Mapping[str, str]) -> list[FactChange]:
    """The facts that differ; what only one night knows is no change."""
    return [
        FactChange(label, before[label], text)
        for label, text in now.items()
        if label in before and before[label] != text
    ]


def missed_nights(last: float, now: float) -> int:
    """How many nights have no measurement since the last one, by times in seconds."""
    days = (now - last) / _DAY_S
    return round(days) - 1 if days > _LATE else 0


def restorable(build: Build, report: Report) -> str:
    """A text that names tonight's build in later nights too, when `current` is another one.

    It is the text that named it, where that is no release that an index has.
    """
    from pytest_asperf.config.build_sources import Interpreter  # noqa: PLC0415
    from pytest_asperf.config.engines import DISTRIBUTIONS  # noqa: PLC0415

    verdicts = [noted.record for noted in report.rows if isinstance(noted.record, VerdictRecord)]
    candidates = [ran_of(verdict)[-1] for verdict in verdicts if verdict.compared]
    known = {(ran.library, ran.version) for ran in candidates if ran.library in DISTRIBUTIONS}
    if not isinstance(build.source, Interpreter) or len(known) != 1:
        return build.name
    ((library, version),) = known
    _, comma, settings = build.name.partition(",")
    return f"{library}=={version}{comma}{settings}"


def night_text(time: float) -> str:
    """A night by its date and time, in the reader's zone."""
    return dt.datetime.fromtimestamp(time).astimezone().strftime("%Y-%m-%d %H:%M")
