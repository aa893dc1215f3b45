"""Errors a user meets: one shallow tree.

Every error says what happened and what to do; its reason and an opt-out only if they add something.
Nothing here imports more than the language, so that any room may raise from it.
"""

from collections.abc import Callable, Iterable
from contextvars import ContextVar
from dataclasses import dataclass
from itertools import accumulate
from typing import Final


def _plainly(key: str, value: str) -> str:
    return f"{key} = {value}" if value else key


#: How the program that prints an advice calls a setting with a value, or without one; pytest's
#: plugin and each command of `asperf` set it.
SETTING_NAMES: Final[ContextVar[Callable[[str, str], str]]] = ContextVar(
    "setting_names", default=_plainly
)


def _forget(error: "AsperfError") -> None:
    """Note no error: outside of a test nothing needs them."""


#: Called with each error that is made, or raised again; pytest's plugin sets it, for a test that
#: catches one.
NOTE_ERROR: Final[ContextVar[Callable[["AsperfError"], object]]] = ContextVar(
    "note_error", default=_forget
)


@dataclass(frozen=True, slots=True, init=False)
class Advice:
    """An advice, and the settings to change for it: printed as the running program names them."""

    text: str  #: the advice, without the settings
    #: name and helpful value of each; no value if only the user knows it
    settings: tuple[tuple[str, str], ...]

    def __init__(
        self, text: str, *keys: str, settings: Iterable[tuple[str, str]] = (), **values: object
    ) -> None:
        valued = ((key, str(value)) for key, value in values.items())
        object.__setattr__(self, "text", text)
        object.__setattr__(self, "settings", (*settings, *valued, *((key, "") for key in keys)))

    def __str__(self) -> str:
        called = [SETTING_NAMES.get()(key, value) for key, value in self.settings]
        return f"{self.text}: {', '.join(called)}" if called else self.text


def advised(what: str | Advice) -> Advice:
    """An advice, if it is one already or only its text."""
    return Advice(what) if isinstance(what, str) else what


#: Longest part of an error: external text may be of any length.
_LONGEST_PART: Final = 4000
_LONGEST_DETAIL: Final = 40_000
#: Longest list of valid words in a remedy.
_LONGEST_LISTING: Final = 240


class AsperfError(Exception):
    """Base of every error that pytest-asperf raises on purpose.

    Args:
        what: what happened, naming the file, key, option or test.
        remedy: what to do about it.
        why: why it matters for the measurement or the verdict, if that is not obvious.
        opt_out: how to go on without fixing it, if that is possible.
        detail: an excerpt to read last, such as an engine's log.
    """

    #: True if the measurement is broken, so that the verdict is INVALID.
    breaks_measurement = False
    #: True if the model lacks the requested feature, so that a test with a model slot is skipped.
    is_unfit = False

    def __init__(
        self,
        what: str,
        *,
        remedy: str | Advice,
        why: str = "",
        opt_out: str | Advice | None = None,
        detail: str | None = None,
    ) -> None:
        self.what = _bounded(what)
        self.why = _bounded(why)
        self.advice = Advice(_bounded(remedy)) if isinstance(remedy, str) else remedy
        self.opt_out = None if opt_out is None else _bounded(str(opt_out))
        self.detail = None if detail is None else _bounded(detail, _LONGEST_DETAIL)
        super().__init__(self.what, self.why, self.remedy, self.opt_out, self.detail)
        NOTE_ERROR.get()(self)

    @property
    def remedy(self) -> str:
        """The advice, in the words of the program that shows it: a thread does not have them."""
        return _bounded(str(self.advice))

    def __str__(self) -> str:
        parts = [self.what, *([f"  why it matters: {self.why}"] if self.why else [])]
        parts.append(f"  what to do:     {self.remedy}")
        if self.opt_out is not None:
            parts.append(f"  to opt out:     {self.opt_out}")
        if self.detail:
            parts.append(self.detail)
        # Names of files are external text, and a terminal obeys control characters.
        return "\n".join(map(escaped, "\n".join(parts).split("\n")))


class ConfigError(AsperfError):
    """An option, marker, configuration file or catalogue entry is not usable as written."""


class SilentError(ConfigError):
    """A test that judges nothing, and would pass with every measurement; no xfail excuses it."""

    is_silent = True


def no_truth_value(what: str, example: str) -> SilentError:
    """The error for a measurement, or a fixture, that is used as a truth value."""
    return SilentError(
        f"{what} is used as a truth value",
        why="it would be true for every measurement",
        remedy=f"compare it with a limit, as in {example}",
    )


class SlotError(ConfigError):
    """A test needs a model slot, such as `@draft`, that no model fills."""

    is_unfit = True


class ModelError(AsperfError):
    """A model file is missing, broken, or cannot be made into the requested one."""


class NoModelError(ModelError):
    """A sound file without a model that generates: a projector, an adapter, an encoder."""


class UnfitError(ConfigError, ModelError):
    """A model lacks the requested quantization, engine or context, and can have none."""

    is_unfit = True


class MislabelledError(ModelError):
    """A file's weights are not of its declared quantization."""

    breaks_measurement = True


class HardwareError(AsperfError):
    """A hardware profile is unknown, or a fact about this machine cannot be read."""


class HardwareNameError(ConfigError, HardwareError):
    """No hardware profile has that name, or several have it."""


class ElsewhereError(HardwareError):
    """This machine cannot provide what a test needs, so the test is skipped."""


class CacheError(AsperfError):
    """The cache folder cannot be used: read-only, full, or not a folder."""


class StoreError(AsperfError):
    """The store of a history cannot be used.

    Attributes:
        may_pass: whether the same attempt may succeed later: locked, full, or out of reach.
    """

    may_pass = False


class BusyError(AsperfError):
    """Another process kept the machine for longer than the wait allowed."""


class BuildError(AsperfError):
    """A build of an engine cannot be made: not found, not compiled, or no network."""


class EngineError(AsperfError):
    """An engine is missing, rejected a request, or died.

    Attributes:
        did: its action, in a word.
        manner: how, such as the signal.
    """

    did = "failed"
    manner = ""


class MeasurementError(AsperfError):
    """The result is empty, not finite, impossible, or not of equal work.

    Attributes:
        machine: the machine's samples during it, as `Watched.facts` gives them; None if it was not
            watched.
    """

    machine: object = None
    breaks_measurement = True


def escaped(text: str) -> str:
    """Text from outside without control characters that a terminal obeys."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def without_passwords(text: str) -> str:
    """A text with the passwords of its URLs left out."""
    import re  # noqa: PLC0415  # few texts have one

    text = re.sub(r"(://[^\s:/@]*):[^\s/@]*@", r"\1:***@", text)
    return re.sub(r"([?&]password=)[^&\s]*", r"\1***", text)


def printable(text: object, at_most: int = 1000) -> str:
    """Text from outside as one line, escaped and bounded."""
    raw = str(text)
    line = escaped(raw[:at_most])
    return f"{line[: at_most - 1]}…" if max(len(raw), len(line)) > at_most else line


def shown(value: object, at_most: int = 200) -> str:
    """The repr of a value from outside as one line, escaped and bounded."""
    try:
        text = repr(value)
    except Exception as error:  # noqa: BLE001  # a foreign class's, or an int of 4,300 digits
        text = f"<{type(value).__name__} whose repr fails with {type(error).__name__}>"
    return printable(text, at_most)


def _bounded(text: str, at_most: int = _LONGEST_PART) -> str:
    """The text, its middle left out if it is too long."""
    if len(text) <= at_most:
        return text
    end = at_most // 4
    return f"{text[: at_most - end - 1]}…{text[-end:]}"


def suggest(word: object, valid: Iterable[str], *, likeness: float = 0.6) -> str:
    """``"; did you mean 'x'?"`` for the nearest valid word, or an empty string."""
    if not isinstance(word, str):
        return ""
    import difflib  # noqa: PLC0415  # costs a millisecond, and only a mistake needs it

    # A text longer than any name has none near it, and comparing is slow.
    near = difflib.get_close_matches(word[:200], list(valid), n=1, cutoff=likeness)
    return f"; did you mean {near[0]!r}?" if near else ""


def listing(words: Iterable[str]) -> str:
    """The valid words as one sorted list for an error message, the last of many only counted."""
    valid = [_bounded(word, _LONGEST_LISTING) for word in sorted(words)]
    ends = accumulate(len(word) + len(", ") for word in valid)
    n_shown = max(1, sum(end - len(", ") <= _LONGEST_LISTING for end in ends))
    more = f" and {len(valid) - n_shown} more" if n_shown < len(valid) else ""
    return ", ".join(valid[:n_shown]) + more
