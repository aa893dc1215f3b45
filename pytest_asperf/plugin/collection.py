"""From markers to test items: rungs of a ladder, skips, and refusals that hit one test alone."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from pytest_asperf.analysis.verdict import VerdictError
from pytest_asperf.errors import ConfigError
from pytest_asperf.plugin.parsing import marks_of, read_marks, usage_errors
from pytest_asperf.plugin.scope import require_scope
from pytest_asperf.plugin.skips import skip
from pytest_asperf.plugin.stash import note, session_of

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from _pytest._code.code import TerminalRepr
    from _pytest.nodes import Node

    from pytest_asperf.published.findings import Finding


def parametrize_ladder(metafunc: pytest.Metafunc) -> None:
    """Run a test once for each rung of its ladder, unless it takes the ladder as a whole.

    A marker that cannot be read leaves the test as it is: its own set-up will refuse it, where an
    error raised here would stop the whole session.
    """
    if not {"quant", "kv_type"} & set(metafunc.fixturenames):
        return
    try:
        marks = read_marks(metafunc.definition)
    except ConfigError:
        return
    if marks.ladder is not None and "quant" in metafunc.fixturenames:
        levels = marks.ladder.levels
        metafunc.parametrize("quant", levels, indirect=True, ids=levels)
    if marks.kv_ladder is not None and "kv_type" in metafunc.fixturenames:
        types = tuple(marks.kv_ladder.types)
        metafunc.parametrize("kv_type", types, indirect=True, ids=types)


def parametrize_findings(metafunc: pytest.Metafunc) -> None:
    """Run a test once for each finding that has no live test."""
    with usage_errors():
        findings = session_of(metafunc.config).findings.findings
    alone = [finding for finding in findings if not finding.live]
    metafunc.parametrize(
        "_asperf_finding", alone, indirect=True, ids=[finding.id for finding in alone]
    )


class RecordedFinding(pytest.Item):
    """Stands in for a live test where its finding is judged by recorded figures.

    Its fixtures are not set up, so that nothing is measured, and what skips the live test, such as
    an engine that is not installed, does not skip it.
    """

    asperf_measures = True

    def __init__(self, *, live: pytest.Item, finding: Finding, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self._location = live.reportinfo()
        self._finding = finding
        self.add_marker(pytest.mark.finding(finding.id))

    def iter_markers_with_node(self, name: str | None = None) -> Iterator[tuple[Node, pytest.Mark]]:
        """Its own markers alone: those of its module say how the live test measures."""
        return ((self, mark) for mark in self.own_markers if name in (None, mark.name))

    def runtest(self) -> None:
        """Judge the figures."""
        judge_finding(self, self._finding)

    def repr_failure(
        self, excinfo: pytest.ExceptionInfo[BaseException], style: Any = None
    ) -> str | TerminalRepr:
        """A verdict has no line of the user's to show: pytest would parse all of its own."""
        if isinstance(excinfo.value, VerdictError):
            return str(excinfo.value)
        return super().repr_failure(excinfo, style)

    def reportinfo(self) -> tuple[Path | str, int | None, str]:
        """The place of the live test."""
        path, line, name = self._location
        return str(path), line, name


def replace_by_recorded(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Put recorded verdicts in the place of live tests of findings, where nothing is measured.

    A marker that cannot be read leaves its test as it is: its own set-up will refuse it.
    """
    session = session_of(config)
    if session.is_live:
        return
    for index, item in enumerate(items):
        mark = item.get_closest_marker("finding")
        if mark is None or item.parent is None:
            continue
        try:
            finding = _marked(item)
        except ConfigError:
            continue
        items[index] = RecordedFinding.from_parent(
            item.parent, name=item.name, live=item, finding=finding
        )


def judge_finding(item: pytest.Item, finding: Finding) -> None:
    """Judge a finding by its recorded figures and note the verdict; VerdictError unless PASS."""
    __tracebackhide__ = True
    from pytest_asperf.published.findings import judge_recorded  # noqa: PLC0415  # numpy, scipy
    from pytest_asperf.records.taken import verdict_record  # noqa: PLC0415  # what it brings

    verdict = judge_recorded(finding, session_of(item.config).findings.evidence)
    note(item, verdict_record(verdict))
    if verdict.outcome != "PASS":
        raise VerdictError(verdict)


def finding_of(item: pytest.Item) -> Finding | None:
    """The finding that a test is about, by its parameter or marker."""
    params = item.callspec.params if hasattr(item, "callspec") else {}
    if "_asperf_finding" in params:
        finding: Finding = params["_asperf_finding"]
        return finding
    return _marked(item) if item.get_closest_marker("finding") else None


def _marked(item: pytest.Item) -> Finding:
    mark = item.get_closest_marker("finding")
    args = mark.args if mark else ()
    if mark is None or len(args) != 1 or mark.kwargs or not isinstance(args[0], str):
        raise ConfigError(
            f"{item.nodeid}: @pytest.mark.finding takes one id",
            why="it says which published finding the test measures",
            remedy='write @pytest.mark.finding("q8-near-lossless"); asperf findings lists them',
        )
    return session_of(item.config).findings.find(
        args[0], where=f"{item.nodeid}: @pytest.mark.finding"
    )


def check_item(item: pytest.Item) -> None:
    """Refuse bad markers, and markers without effect; skip a test meant for other hardware."""
    marks = marks_of(item)
    names = set(getattr(item, "fixturenames", ()))
    if marks.ladder is not None and marks.kv_ladder is not None:
        raise ConfigError(
            f"{item.nodeid}: both a quant_ladder and a kv_ladder marker",
            why="if weights and cache both change, no difference is due to one of them",
            remedy="keep one; a quant marker beside kv_ladder names the weights",
        )
    for name, mark, fixture in (
        ("quant_ladder", marks.ladder, "quant"),
        ("kv_ladder", marks.kv_ladder, "kv_type"),
    ):
        if mark is not None and not names & {fixture, "ladder"}:
            raise ConfigError(
                f"{item.nodeid}: a {name} marker on a test that uses none of its fixtures",
                why="the test would run once and measure none of the rungs",
                remedy=f"take the perplexity, throughput, model, {fixture} or ladder fixture",
            )
    if marks.speculative is not None and not {"speculation", "gate"} & names:
        raise ConfigError(
            f"{item.nodeid}: a speculative marker on a test that does not take its fixture",
            why="the test would measure no speculation",
            remedy='take the speculation fixture, or gate for gate("sd")',
        )
    finding = finding_of(item)
    if finding is not None:
        require_scope(item, finding)
    if marks.hardware is not None and (reason := session_of(item.config).unmet(marks.hardware)):
        skip("test", reason)
