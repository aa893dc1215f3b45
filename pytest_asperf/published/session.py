"""Findings in a pytest session: which test measures which, their scope, and their verdicts."""

from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, Final

import pytest
from _pytest._code.code import TerminalRepr
from _pytest.nodes import Node

from pytest_asperf.analysis.verdict import JudgedRecord, Outcome, Verdict
from pytest_asperf.errors import Advice, AsperfError, ConfigError
from pytest_asperf.hardware.in_force import Hardware
from pytest_asperf.modelfiles.sizes import parameters_of
from pytest_asperf.plugin.parsing import usage_errors
from pytest_asperf.plugin.selection import selection_of
from pytest_asperf.plugin.skips import skip
from pytest_asperf.plugin.stash import Notebook, session_for, session_of
from pytest_asperf.published.findings import (
    Finding,
    Findings,
    judge_recorded,
    load_findings,
    published_text,
)
from pytest_asperf.published.findings.model import count_text
from pytest_asperf.report.verdict_text import VerdictError

_FINDINGS: Final = pytest.StashKey["Findings"]()
#: The scope of a test's finding, if that is not the measured one.
_OUT_OF_SCOPE: Final = pytest.StashKey[str]()
#: Verdicts on a finding's own figures with which it has nothing that a machine could fall short of.
_UNSHOWN: Final = (Outcome.FAIL, Outcome.INVALID)


def findings_of(config: pytest.Config) -> Findings:
    """The findings of a session: the shipped ones and the project's own, loaded once."""
    if _FINDINGS not in config.stash:
        settings = session_of(config).settings
        config.stash[_FINDINGS] = load_findings(settings.findings, settings.published_figures)
    return config.stash[_FINDINGS]


def finding_of(item: pytest.Item) -> Finding:
    """The finding that a test is about, by its parameter or marker."""
    params = item.callspec.params if hasattr(item, "callspec") else {}
    if "_asperf_finding" in params:
        finding: Finding = params["_asperf_finding"]
        return finding
    mark = item.get_closest_marker("finding")
    args = mark.args if mark else ()
    if mark is None or len(args) != 1 or mark.kwargs or not isinstance(args[0], str):
        raise ConfigError(
            f"{item.nodeid}: @pytest.mark.finding needs one id",
            why="it names the published finding that the test measures",
            remedy='write @pytest.mark.finding("q8-near-lossless"); asperf findings lists them',
        )
    where = f"{item.nodeid}: @pytest.mark.finding"
    return findings_of(item.config).find(args[0], where=where)


def parametrize(metafunc: pytest.Metafunc, fixture: str) -> None:
    """Run a test once for each finding that has no live test."""
    with usage_errors():
        findings = findings_of(metafunc.config).findings
    alone = [finding for finding in findings if not finding.live]
    metafunc.parametrize(fixture, alone, indirect=True, ids=[finding.id for finding in alone])


def judges_recorded(item: pytest.Item, finding: Finding, hardware: Hardware) -> Callable[[], None]:
    """The judge of a finding's published figures; skips the test if the session measures."""
    if session_of(item.config).is_live:
        reason = str(
            Advice("nothing measures it live; judge its published figures", source="recorded")
        )
        skip("finding", f"{reason} of {hardware.name}" if finding.hardware else reason)
    return partial(_judge, item, finding)


def _judge(item: pytest.Item, finding: Finding) -> None:
    __tracebackhide__ = True
    verdict = judge_recorded(finding, findings_of(item.config).evidence)
    Notebook(item)(verdict)
    if verdict.outcome is not Outcome.PASS:
        raise VerdictError(verdict)


class RecordedFinding(pytest.Item):
    """Replaces a live test if its finding is judged by its published figures.

    Its fixtures are not set up, so that nothing is measured, and a missing engine does not skip it.
    """

    asperf_measures = True

    def __init__(self, *, live: pytest.Item, finding: Finding, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self._location = live.reportinfo()
        self._finding = finding
        self.add_marker(pytest.mark.finding(finding.id))

    def iter_markers_with_node(self, name: str | None = None) -> Iterator[tuple[Node, pytest.Mark]]:
        """Its own markers only: those of its module are about the live measurement."""
        return ((self, mark) for mark in self.own_markers if name in (None, mark.name))

    def runtest(self) -> None:
        """Judge the figures."""
        _judge(self, self._finding)

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


def replace_by_recorded(
    config: pytest.Config, items: list[pytest.Item], is_chosen: Callable[[pytest.Item], bool]
) -> None:
    """Put verdicts on published figures in the place of live tests, if nothing is measured.

    A marker that cannot be read leaves its test unchanged: its own set-up raises the error.
    """
    with usage_errors():
        if session_for(config, (item.path for item in items if is_chosen(item))).is_live:
            return
    for index, item in enumerate(items):
        if not is_chosen(item) or item.parent is None or "_asperf_finding" in item.fixturenames:  # type: ignore[attr-defined]
            continue
        with suppress(ConfigError):
            items[index] = RecordedFinding.from_parent(
                item.parent, name=item.name, live=item, finding=finding_of(item)
            )


def require_scope(item: pytest.Item) -> None:
    """Skip a test if its finding is about other hardware, another engine or other models.

    The setting `findings_scope` has it tried all the same.
    """
    finding, session = finding_of(item), session_of(item.config)
    reason = _out_of_scope(item, finding)
    if reason and session.settings.findings_scope == "here":
        skip("finding", f"the finding is about {reason}")
    if reason and session.is_live:
        item.stash[_OUT_OF_SCOPE] = reason


def _out_of_scope(item: pytest.Item, finding: Finding) -> str:
    session = session_of(item.config)
    if reason := session.other_hardware(finding.hardware):
        return reason
    measures = session.is_live and item.get_closest_marker("finding")
    if not measures or not (finding.engine or finding.parameters):
        return ""
    ref = selection_of(item).judged
    engine = ref.spec.engine or session.settings.engine
    if not finding.suits_engine(engine):
        about = "a server at a URL" if finding.engine == "openai" else finding.engine
        return f"{about}, this is {engine}"
    if finding.parameters is None:
        return ""
    number, (least, most) = parameters_of(ref.spec), finding.parameters
    if number is not None and least <= number <= most:
        return ""
    has = "an unknown number" if number is None else count_text(number)
    return f"{finding.sizes}, {ref.spec.name} has {has}"


def labelled(item: pytest.Item, record: JudgedRecord) -> JudgedRecord | None:
    """A verdict with its finding, and why it fails no test if it is no failure of this machine."""
    try:
        finding = finding_of(item)
    except AsperfError:  # the test's own set-up reports it
        return None
    about = {
        "finding": finding.id,
        "statement": finding.statement,
        "published": published_text(finding, findings_of(item.config).evidence),
        "verdict on the published figures": str(finding.expected),
    }
    if not isinstance(record, Verdict):
        return replace(record, about=about)
    if record.source == "recorded":
        return replace(record, about=about, excused="published figures were judged")
    if finding.instead:
        about["asserted here"] = finding.instead
    if scope := item.stash.get(_OUT_OF_SCOPE, ""):
        excused = f"the finding is about {scope}"
        return replace(record, about=about, excused=excused, source="out of scope")
    is_unshown = finding.expected in _UNSHOWN and record.outcome is not Outcome.INVALID
    excused = "the published figures do not show the statement either" if is_unshown else ""
    return replace(record, about=about, excused=excused)


def mark_untried(item: pytest.Item, report: Any) -> None:
    """Put on a skipped test's report which finding was not tried, and why."""
    if not isinstance(report.longrepr, tuple):
        return
    with suppress(AsperfError):
        reason = report.longrepr[2].removeprefix("Skipped: ")
        report.asperf_untried = finding_of(item).id, reason
        report.asperf_skipped = "finding", reason
