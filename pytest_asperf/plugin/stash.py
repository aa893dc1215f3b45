"""The place of a session's state and a test's notes: pytest's own stash."""

from __future__ import annotations

import math
import time
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field, replace
from inspect import signature
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pytest

if TYPE_CHECKING:
    from pytest_asperf.analysis.verdict import Verdict
    from pytest_asperf.errors import AsperfError
    from pytest_asperf.plugin.session import Session
    from pytest_asperf.records.kinds import AnyRecord
    from pytest_asperf.report.verdict_text import VerdictError

_SESSION = pytest.StashKey["Session"]()
_TESTS = pytest.StashKey["Iterable[Path]"]()
_ROWS = pytest.StashKey["dict[str, list[tuple[float, AnyRecord]]]"]()
_COURSE = pytest.StashKey["_Course"]()
#: The test that runs, or ran last.
_RUNNING = pytest.StashKey[pytest.Item]()
_JUDGED_AT = pytest.StashKey[float]()
#: Measurements that an error names.
_MOST_NAMED: Final = 3


def session_of(config: pytest.Config) -> Session:
    """The session's state, made at the first call.

    Raises:
        ConfigError: its settings are not usable, at this call and each that follows.
    """
    session = opened_session(config)
    if session is None:
        from pytest_asperf.plugin.project import folder_of
        from pytest_asperf.plugin.session import Session

        folder = folder_of(config, config.stash.get(_TESTS, frozenset()))
        session = config.stash[_SESSION] = Session(config, folder)
    return session


def session_for(config: pytest.Config, tests: Iterable[Path]) -> Session:
    """The session's state for tests in these files, whose place decides which settings count.

    A session that was opened before the tests were known, with the settings of another folder, is
    replaced: it has measured nothing.

    Raises:
        ConfigError: its settings are invalid, or the tests have several configuration files.
    """
    from pytest_asperf.plugin.project import folder_of

    config.stash[_TESTS] = frozenset(tests)
    session = opened_session(config)
    if session is not None and session.folder != folder_of(config, config.stash[_TESTS]):
        del config.stash[_SESSION]
    return session_of(config)


def check_before_tests(config: pytest.Config) -> None:
    """Reject settings in xdist's controller, before its workers reject them test by test.

    If the command line's paths leave the file open, only the workers can find it.
    """
    from pytest_asperf.errors import ConfigError
    from pytest_asperf.plugin.project import folder_of

    try:
        folder_of(config, ())
    except ConfigError:
        return
    session_of(config).check()


def meet_tests(config: pytest.Config, report: pytest.TestReport) -> None:
    """Use the settings nearest to a test whose first report reaches xdist's controller.

    Invalid settings already raised in the test's own process.
    """
    from pytest_asperf.errors import AsperfError

    path = config.rootpath / report.nodeid.partition("::")[0]
    if path.exists():  # with several machines it may be on another one only
        with suppress(AsperfError):
            session_for(config, [path])


def opened_session(config: pytest.Config) -> Session | None:
    """The session's state; None if nothing needed it yet."""
    return config.stash.get(_SESSION, None)


@dataclass(frozen=True, slots=True)
class Unreported:
    """The notes of a test that pytest made no report of, because the session ended in it.

    It has the attributes of a report that are read here; being the last, it begins last.
    """

    nodeid: str
    asperf_rows: list[dict[str, object]]
    start: float = math.inf


@dataclass(slots=True)
class _Course:
    """How one run of a test has gone so far."""

    measured: list[str] = field(default_factory=list)
    has_asserted: bool = False
    forgotten: list[Verdict] = field(default_factory=list)
    undecided: list[Verdict] = field(default_factory=list)
    read: list[Verdict] = field(default_factory=list)
    #: verdicts that no test may hide, each with the number of the test's xfail marks at that time
    bad: list[tuple[Verdict, int]] = field(default_factory=list)
    raised: list[VerdictError] = field(default_factory=list)
    errors: list[AsperfError] = field(default_factory=list)
    has_begun: bool = False
    has_late_fixtures: bool = False
    is_over: bool = False


@dataclass(frozen=True, slots=True)
class Notebook:
    """Collects a test's measurements and assertions, through its fixtures, and the errors made.

    A measurement that a later test has from an earlier one is that later test's.
    """

    item: pytest.Item
    is_for_facts: bool = False  #: True if its fixture may be used without a measurement

    def __post_init__(self) -> None:
        from pytest_asperf.errors import NOTE_ERROR

        course = _course_of(self.item)
        NOTE_ERROR.set(course.errors.append)
        course.has_late_fixtures |= course.has_begun and not self.is_for_facts

    @property
    def _running(self) -> pytest.Item:
        return self.item.config.stash.get(_RUNNING, self.item)

    def __call__(self, row: AnyRecord, *, instead_of: AnyRecord | None = None) -> None:
        """Note a measurement, or a verdict, which may replace one that was noted."""
        note(self._running, row, instead_of)

    def measured(self, what: str) -> None:
        """Note that something was measured, of which an assertion is expected."""
        _course_of(self._running).measured.append(what)

    def used(self) -> None:
        """Note that the test has read a number, which its own code may judge."""
        _course_of(self._running).has_asserted = True

    def compared(self, verdict: Verdict) -> None:
        """Note a comparison's verdict, which the test is expected to assert."""
        course = _course_of(self._running)
        course.forgotten.append(verdict)
        if verdict.plain().outcome in {"FAIL", "INVALID"}:
            course.bad.append((verdict, _xfail_marks(self._running)))

    def asserted(self, verdict: Verdict) -> None:
        """Note that the test has asserted a verdict, or read its outcome."""
        course = _course_of(self._running)
        course.read.append(verdict)
        course.forgotten = [one for one in course.forgotten if one is not verdict]
        course.raised = [error for error in course.raised if error.verdict is not verdict]

    def raised(self, error: VerdictError) -> None:
        """Note a verdict that is raised, which must end the test or be read."""
        _course_of(self._running).raised.append(error)

    def keeps(self, undecided: Verdict) -> bool:
        """True if the test goes on, and its end raises the verdict: unless that fails the test."""
        course = _course_of(self._running)
        if course.is_over or session_of(self._running.config).settings.inconclusive == "fail":
            return False
        course.undecided.append(undecided)
        return True


def _course_of(item: pytest.Item) -> _Course:
    return item.stash.setdefault(_COURSE, _Course())


def begin_test(item: pytest.Item) -> None:
    """Note that a test runs, and forget an earlier run of it."""
    item.config.stash[_RUNNING] = item
    if _COURSE in item.stash:
        del item.stash[_COURSE]


def begin_call(item: pytest.Item) -> None:
    """Note that the set-up of a test is over, and its own code begins."""
    _course_of(item).has_begun = True


def end_of(item: pytest.Item) -> AsperfError | VerdictError | None:
    """The error that a test ends with: its first undecided assertion, or that it asserted nothing.

    None if it needs no error. A test that has raised one of its own keeps that.
    """
    course = _course_of(item)
    course.is_over = True  # an assertion in its tear-down can wait for nothing
    if course.forgotten:
        return forgotten_by(item)
    # The second limit of a chain can have decided it.
    still_open = [one for one in course.undecided if one.plain().outcome == "INCONCLUSIVE"]
    if still_open:
        from pytest_asperf.report.verdict_text import VerdictError

        return VerdictError(still_open[0])
    # Times by pytest-benchmark's `benchmark` fixture are in its own table.
    is_recorded = "benchmark" in getattr(item, "fixturenames", ())
    if course.has_asserted or is_recorded:
        return None
    if not course.measured:
        return _unused_by(item)
    from pytest_asperf.errors import SilentError, listing

    what = list(dict.fromkeys(course.measured))
    shown = [
        *what[:_MOST_NAMED],
        *([f"{len(what) - _MOST_NAMED} more"] * (len(what) > _MOST_NAMED)),
    ]
    return SilentError(
        f"{item.name} measured {listing(shown)} and asserted nothing",
        why="it would pass for every measurement",
        remedy=f"write an assertion, such as {_example_of(item)}",
        opt_out="to record a measurement without a limit, read its number, "
        'as in throughput("tg128").estimate',
    )


def _unused_by(item: pytest.Item) -> AsperfError | None:
    """The error for a fixture that its test names, or sets up, and never uses; None if none.

    Another fixture that names it may use it when the test is over.
    """
    if not isinstance(item, pytest.Function):
        return None
    marks = item.iter_markers("usefixtures")
    named = {*signature(item.function).parameters, *(name for mark in marks for name in mark.args)}
    values = {name: value for name, value in item.funcargs.items() if name in named}
    taken = [name for name, value in values.items() if getattr(type(value), "needs_use", False)]
    if not taken and not _course_of(item).has_late_fixtures:
        return None
    from pytest_asperf.errors import SilentError, printable

    fault = "never uses it"
    if errors := _course_of(item).errors:
        fault = f"only caught: {printable(errors[0].what, 120)}"
    return SilentError(
        f"{item.name} has {taken[0] if taken else 'a fixture'} and {fault}",
        why="it measures nothing, and would pass on every machine",
        remedy=f"write an assertion, such as {_example_of(item)}, or leave the fixture out",
    )


def forgotten_by(item: pytest.Item) -> AsperfError | None:
    """The error for a comparison whose verdict was never read; None if there is none."""
    course = _course_of(item)
    if not course.is_over or not course.forgotten:  # a set-up that failed has its own error
        return None
    from pytest_asperf.errors import SilentError, printable
    from pytest_asperf.report.verdict_text import claim_text

    claim = printable(claim_text(course.forgotten[0]), 120)
    course.forgotten.clear()  # the tear-down reports its own
    return SilentError(
        f"{item.name} compared and did not assert: {claim}",
        why="it would pass with every verdict",
        remedy="write `assert` before the comparison, or read the verdict's outcome",
    )


def require_none_caught(
    item: pytest.Item, call: pytest.CallInfo[None], report: pytest.TestReport
) -> None:
    """Reject a report that hides a caught verdict, a broken measurement, or a silent test.

    An error that pytest reports shows its verdict, and another failure keeps the test red.
    """
    error = call.excinfo.value if call.excinfo is not None else None
    if error is not None and hasattr(report, "wasxfail") and hasattr(error, "is_silent"):
        raise error
    course = item.stash.get(_COURSE, None)
    if course is None or not (course.raised or course.errors or course.read):
        return
    is_ended_early = isinstance(error, pytest.skip.Exception | pytest.xfail.Exception)
    read = [verdict.plain() for verdict in course.read] if is_ended_early else []
    course.read.clear()
    ended = [] if is_ended_early else list(_with_causes(error))
    waiting = [getattr(error, "verdict", None) in course.undecided for error in ended]
    broken = [error for error in course.errors if _was_caught_outside(error)]
    caught: list[AsperfError | VerdictError] = [*course.raised, *broken]
    hidden = [error for error in caught if error not in ended]
    course.raised.clear()
    course.errors.clear()
    if hidden and (not report.failed or any(waiting)):
        raise _caught(item.name, hidden[0])
    failed = [verdict for verdict in read if verdict.outcome in {"FAIL", "INVALID"}]
    if hasattr(report, "wasxfail"):
        failed += [one.plain() for one, before in course.bad if _xfail_marks(item) > before]
    course.bad.clear()
    if failed:
        raise _left(item.name, failed[0])


def _xfail_marks(item: pytest.Item) -> int:
    return sum(1 for _ in item.iter_markers("xfail"))


def _was_caught_outside(error: AsperfError) -> bool:
    """True if an error says that a measurement is broken, and code of others caught it.

    Its traceback begins where it was caught.
    """
    if not error.breaks_measurement or error.__traceback__ is None:
        return False
    caught_in = Path(error.__traceback__.tb_frame.f_code.co_filename)
    return Path(__file__).parents[1] not in caught_in.parents


def _caught(name: str, error: AsperfError | VerdictError) -> AsperfError:
    """The error of a test that caught a verdict, or a broken measurement."""
    from pytest_asperf.errors import AsperfError, ConfigError, printable
    from pytest_asperf.report.verdict_text import claim_text

    if isinstance(error, AsperfError):
        return ConfigError(
            f"{name} caught that a measurement is INVALID: {printable(error.what, 120)}",
            why="the test would pass with every broken measurement",
            remedy="leave the error uncaught; if it is expected, mark the test with "
            f"@pytest.mark.xfail(raises={type(error).__name__}, strict=True)",
        )
    verdict = error.verdict.plain()
    return ConfigError(
        f"{name} caught the {verdict.outcome} of: {printable(claim_text(verdict), 120)}",
        why="the test would pass with every verdict",
        remedy="leave the assertion uncaught, or compare its outcome: verdict.outcome == "
        f'"{verdict.outcome}"',
    )


def _left(name: str, verdict: Verdict) -> AsperfError:
    """The error of a test that skipped its rest after it had read a verdict."""
    from pytest_asperf.errors import ConfigError, printable
    from pytest_asperf.report.verdict_text import claim_text

    return ConfigError(
        f"{name} was left after the {verdict.outcome} of: {printable(claim_text(verdict), 120)}",
        why="a skip or an xfail would hide it",
        remedy="assert the verdict; if it is expected, compare its outcome, without a skip, or "
        "mark the test before it measures",
    )


def _with_causes(error: BaseException | None) -> Iterator[BaseException]:
    """An exception, its causes, and the members of its group."""
    while error is not None:
        yield error
        if isinstance(error, BaseExceptionGroup):
            for member in error.exceptions:
                yield from _with_causes(member)
        error = error.__cause__ or error.__context__


def _example_of(item: pytest.Item) -> str:
    """An assertion on one of a test's fixtures."""
    taken = getattr(item, "funcargs", {})
    examples = {name: getattr(type(value), "example", "") for name, value in taken.items()}
    examples["model"] = ""  # which measures nothing
    return next(filter(None, examples.values()), 'assert throughput("tg128") >= "40 tok/s"')


def note(item: pytest.Item, row: AnyRecord, instead_of: AnyRecord | None = None) -> None:
    """Note a row with its test, once for any number of calls."""
    course = _course_of(item)
    if row.outcome != "":
        course.has_asserted = True
    else:
        from pytest_asperf.records.kinds import Noted
        from pytest_asperf.report.lines import first_line

        line = first_line(Noted("", row))
        course.measured.append(f"{line.subject} of {line.model}")
    noted = item.config.stash.setdefault(_ROWS, {}).setdefault(item.nodeid, [])
    noted[:] = [(at, earlier) for at, earlier in noted if earlier is not instead_of]
    if row not in (earlier for _, earlier in noted):
        noted.append((time.time(), row))


def has_notes(item: pytest.Item) -> bool:
    """True if a test has noted rows that are not collected."""
    return item.nodeid in item.config.stash.get(_ROWS, {})


def take_notes(item: pytest.Item, began: float) -> list[AnyRecord]:
    """The rows that a test noted since the last call; the first phase of the test began then.

    An assertion's time is that since the one before it, unless it has its own.
    """
    from pytest_asperf.analysis.verdict import JudgedRecord

    rows: list[AnyRecord] = []
    last = item.stash.get(_JUDGED_AT, began)
    for at, row in item.config.stash.get(_ROWS, {}).pop(item.nodeid, []):
        if isinstance(row, JudgedRecord) and row.elapsed_s is None:
            rows.append(replace(row, elapsed_s=at - last))
        else:
            rows.append(row)
        last = at if row.outcome != "" else last
    item.stash[_JUDGED_AT] = last
    return rows


def unreported(config: pytest.Config) -> list[Unreported]:
    """The rows that were noted but never collected."""
    noted = config.stash.get(_ROWS, {}).items()
    if not noted:
        return []
    from pytest_asperf.records.codec import encode

    return [Unreported(nodeid, [encode(row) for _, row in rows]) for nodeid, rows in noted]
