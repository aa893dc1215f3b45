"""The headings, labels and shell commands above a tool's output, which distinguish runs."""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple, TypeVar

from pytest_asperf.worker.printed.engine_log import LOG_PREFIX

_LONGEST: Final = 80
_FENCE: Final = re.compile(r"(?:```|~~~|<pre>|</pre>)")
_MARKED: Final = re.compile(
    r"(?P<level>#{1,6}) +(?P<mark>\S.*)|\*\*(?P<bold>[^*]+)\*\*:?$|__(?P<under>[^_]+)__:?$"
    r"|.*<(?:summary|h[1-6])[^>]*>(?P<tag>.*?)(?:</.*)?$"
)
#: As scripts print before a step.
_STEP: Final = re.compile(
    r"(?:##\[group\]|::group::)(?P<group>.*)|[=#-]{2,} +(?P<step>\S.*?) +[=#-]{2,}$"
)
_RULE: Final = re.compile(r"(?:={2,}|-{3,})$")
_PROMPT: Final = (
    r"(?:(?:\[?[\w.-]+@[\w.-]+[^$#%]{0,80}[$#%]|(?:PS )?[A-Za-z]:\\[^>]{0,120}>|PS [^>]{0,120}>"
    r"|[$#%\u276f\u279c+]) *)"
)
_PROGRAM: Final = (
    r"(?:(?:sudo|time|env|numactl \S+|\w+=\S*) +)*(?:\S*[/\\])?"
    r"(?:llama-[\w-]+|main|server|perplexity|batched-bench|ollama|vllm|guidellm|genai-perf|aiperf"
    r"|mlx_lm[.\w]*|python[\d.]*)(?:\.exe)? +(?:-|run |bench |serve |benchmark |profile |\S+\.py)"
)
_COMMAND: Final = re.compile(
    rf"{_PROMPT}?({_PROGRAM}.*)|(?:\$|PS [^>]*>) +(\S.*)|>>> (/(?:load|set) .*)"
)
_NUMBERED: Final = re.compile(r"(?:[-*+]|\d{1,2}[.)]) +")
#: A line of a program about itself, and one of a table.
_OF_PROGRAM: Final = re.compile(
    r"[\w.:~-]{2,60}: |[^:]{2,60}: +[\d.]|\||[\u2139=-]|.*(?:[{}]|\[\d)|(?:</?[a-z]+>)+$"
)
#: Timings, and a prompt that the text above them answers.
_TIMINGS: Final = re.compile(
    r"(?:total|load|prompt eval|eval) (?:duration|count|rate): |llama_(?:perf|print)\w*: "
)
#: A line of llama.cpp's binaries, which are most of a log's, and neither timings nor a title.
_OF_LOG: Final = re.compile(
    rf"(?:{LOG_PREFIX.pattern})?(?!llama_p)(?:(?:slot|srv|que|res) +\w+: |[a-z]+_\w+: )"
)
_ASKED: Final = ">>> "
_WORD: Final = re.compile(r"[^\W\d_]|v?\d")
#: Headings of tools' own output.
_OF_TOOL: Final = re.compile(r".*(?:Benchmark Result|statistics|Running in interactive)")
_T = TypeVar("_T")


class Title(NamedTuple):
    """The place of an output: its heading and command, its build and model."""

    heading: str = ""
    command: str = ""
    build: str = ""
    model: str = ""


@dataclass(slots=True)
class TitleReader:
    """Finds the heading and the command that a line is under.

    A heading is marked as one, or is a line of its own that ends with a colon or is above a table,
    a code fence or timings; a model's output is between a prompt and its timings.
    """

    heading: str = ""
    command: str = ""
    _last: str = ""
    _alone: str = ""
    _level: str = ""
    _next_level: str = ""
    _is_new: bool = True
    _is_fenced: bool = False
    _n_texts: int = 0
    _is_reply: bool = False

    def feed(self, line: str) -> None:
        """Parse one line, as it was pasted."""
        if not _OF_LOG.match(line):
            self._feed_text(line.strip())
        elif self._is_reply:
            self._forget()
        else:
            self._n_texts += self._is_new
            self._is_new = False
        self._level = self._next_level
        self._next_level = ""

    def _feed_text(self, text: str) -> None:
        if numbered := _NUMBERED.match(text):
            text = text[numbered.end() :]
        if not text:
            self._is_new = True
        elif found := _COMMAND.match(text) or (not _OF_TOOL.match(text) and _STEP.match(text)):
            self.command = next(filter(None, found.groups()), "").strip()[:_LONGEST]
            self._is_reply = False
            self._forget()
            self._n_texts = 1
        elif _TIMINGS.match(text):
            self._set(self._alone if self._n_texts == 1 else "")
            self._is_reply = False
        elif self._is_reply or text.startswith(_ASKED):
            self._is_reply = True
            self._forget()
        elif _FENCE.match(text):
            self._fence()
        elif text.startswith("|"):
            self._set(self._alone)
        elif _RULE.match(text):
            self._set(self._alone)
            self._is_new = False
        elif marked := _MARKED.match(text):
            self._add_marked(marked)
        else:
            self._add_prose(text)

    def _add_marked(self, marked: re.Match[str]) -> None:
        level, *texts = marked.groups(default="")
        heading = next(filter(None, texts), "")
        # Lines below each other with one sign are comments.
        is_comment = level and level == self._level
        self._next_level = level
        if not is_comment and not _OF_PROGRAM.match(heading):
            self._set(heading)

    def _add_prose(self, text: str) -> None:
        is_new, self._is_new = self._is_new, False
        self._n_texts += is_new
        if _OF_PROGRAM.match(text):
            return
        self._alone = text if is_new and len(text) <= _LONGEST else ""
        self._last = text
        if self._alone.endswith(":"):
            self._set(self._alone)

    def _fence(self) -> None:
        if not self._is_fenced:
            self._set(self._last)
        self._is_fenced = not self._is_fenced
        self._forget()

    def _set(self, text: str) -> None:
        text = text.strip(" #*_:")
        if _WORD.search(text):
            self.heading, self.command = text[:_LONGEST], ""
        self._forget()

    def _forget(self) -> None:
        self._last, self._alone, self._is_new, self._n_texts = "", "", True, 0


def labels(titles: Iterable[Title]) -> list[str]:
    """For each title its distinguishing part; empty if there is none."""
    titles = list(titles)
    parts = [i for i in range(len(Title._fields)) if len({title[i] for title in titles}) > 1]
    return [", ".join(filter(None, (title[i] for i in parts))) for title in titles]


def grouped(items: Sequence[_T], titles: Sequence[Title]) -> list[tuple[str, list[_T]]]:
    """The items below one title together, with its label, in order."""
    groups: dict[str, list[_T]] = {}
    for item, label in zip(items, labels(titles), strict=True):
        groups.setdefault(label, []).append(item)
    return list(groups.items())


def prefixes(n_runs: int, labels: Sequence[str]) -> list[str]:
    """The begin of the names of each run's figures: its label if all differ, or its number."""
    if n_runs < 2:
        return [""] * n_runs
    if len(labels) == n_runs and all(labels) and len({*labels}) == n_runs:
        return [f"{label}: " for label in labels]
    return [f"run {number}: " for number in range(1, n_runs + 1)]
