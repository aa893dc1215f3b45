"""A server without another build to compare: answers and figures of its own making are INVALID."""

import itertools
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.plugin.conftest import Project
from tests.served import WordServer

#: By workload: an assertion that every figure passes.
ASSERTED = {
    "tg32": "throughput('tg32') >= 1",
    "ttft64": "latency('ttft64') <= 1e6",
    "ttft64@warm": "latency('ttft64@warm') <= 1e6",
    "itl32": "latency('itl32') <= 1e6",
}
#: By name, what a server reports falsely, of its own times and counts.
FALSE: dict[str, Callable[[dict[str, float]], dict[str, float]]] = {
    "faster": lambda own: {"predicted_ms": own["predicted_ms"] / 8, "predicted_per_second": 0},
    "slower": lambda own: {"predicted_ms": own["predicted_ms"] * 8, "predicted_per_second": 0},
    "another rate": lambda own: {"predicted_per_second": 2 * own["predicted_per_second"]},
    "more tokens": lambda own: {"predicted_n": 3 * own["predicted_n"]},
    "a shorter prompt": lambda own: {"prompt_n": own["prompt_n"] // 2},
    "more accepted than drafted": lambda _: {"draft_n": 8, "draft_n_accepted": 9},
    "all accepted": lambda own: {"draft_n": 99, "draft_n_accepted": own["predicted_n"]},
    "most accepted": lambda _: {"draft_n": 25, "draft_n_accepted": 25},
    "a negative time": lambda _: {"prompt_ms": -1.0},
}
#: By kind of answers, the workload that they would make false, and a part of the finding.
ANSWERS = {
    "canned": ("tg32", "timed-work: 4 requests that differ"),
    "canned, shortly": ("ttft64", "timed-work: 4 requests that differ"),
    "canned unless greedy": ("tg32", "timed-work: 4 requests that differ"),
    "replayed by the end": ("tg32", "timed-work: 4 requests that differ"),
    "replayed by the prompt": ("ttft64@warm", "timed-work: 4 requests that differ"),
    "random": ("tg32", "timed-work: of 6 requests that were sent again"),
    "shortened": ("tg32", "false-account: the text of an answer"),
    "without text": ("tg32", "false-account: the text of an answer"),
    "in pieces": ("tg32", "false-account: the text of an answer"),
    "known text": ("ttft64", "timed-work: a timed run lasted"),
    "garbage after 20 words": ("tg32", "timed-work: of 6 answers without sampling"),
    "a loop": ("ttft64", "timed-work: of 6 answers without sampling"),
    "garbage if sampled": ("tg32", "timed-work: of 12 answers at a temperature near 0"),
    "garbage if warm": ("tg32", "timed-work: sampled answers have hardly a word"),
    "the last end of a chat": ("tg32", "timed-work: 4 requests that differ"),
    "held": ("tg32", "timed-work: the first token of a long answer"),
    "in bursts": ("itl32", "tokens-per-chunk: 1 of 1 replies came in other pieces"),
}
#: By kind: what answers are kept by, and the share of an answer that lacks.
KEPT_BY: dict[str, Callable[[str, int | None, int], object]] = {
    "replayed by the end": lambda prompt, _seed, _n: prompt[-8:],
    "replayed by the prompt": lambda prompt, _seed, _n: prompt,
    "answers kept": lambda prompt, seed, n: (prompt, seed, n),
}
LACKING = {"shortened": 0.2, "without text": 0.5, "in pieces": 0.75}
#: By kind: the first words of an answer that are right.
RIGHT = {"garbage after 20 words": 20, "a loop": 4, "the last end of a chat": 4}
HONEST = ("as it should", "a chat without seeds", "no sampling", "answers kept")


class Other(WordServer):
    """A server of one kind that reports times and counts as llama-server does."""

    step_s = 0.002

    def __init__(self, how: str) -> None:
        self._how = how
        self._known: dict[str, list[str]] = {}
        self._numbers = itertools.count()
        self._is_known = False
        self._last = super().answer("", None, 64)
        if how in (*RIGHT, *LACKING) or "canned" in how:
            self.step_s = 0.0005  # no time is compared before its answers are
        if how == "held":
            self.step_s = 0.006  # long compared with what other tests delay the rest of an answer
        if how.startswith("garbage if"):
            self.coldest = 0.5 if "warm" in how else 0
        cached = 60 * (how == "replayed by the prompt")
        super().__init__(cached=cached, has_completions="chat" not in how)

    def answer(self, prompt: str, seed: int | None, n: int) -> list[str]:
        """So many words after a prompt."""
        beginning = prompt.partition("\n")[2][:60]
        self._is_known = self._how == "known text" and beginning in self._known
        self._known.setdefault(beginning, [])
        if self._how in KEPT_BY:
            key = str(KEPT_BY[self._how](prompt, seed, n))
            return self._known.setdefault(key, super().answer(prompt, seed, 64))[:n]
        if self._how.startswith("canned") and (seed is not None or "greedy" not in self._how):
            return ["word"] * n if "shortly" in self._how else super().answer("", None, n)
        if self._how == "random" or ("without seeds" in self._how and seed is not None):
            return super().answer(prompt, next(self._numbers), n)
        if self._how.startswith("garbage if") and seed is not None:
            return super().answer(f"{prompt} noise", seed, n)
        n_right = n - int(n * LACKING.get(self._how, 0))
        words = super().answer(prompt, None if self._how == "no sampling" else seed, n_right)
        if self._how in RIGHT:
            return self._wrong(prompt, seed, words)
        return words + [""] * (n - n_right) if self._how == "without text" else words

    def _wrong(self, prompt: str, seed: int | None, words: list[str]) -> list[str]:
        """Words of which the first are right."""
        right, n = words[: RIGHT[self._how]], len(words)
        if self._how == "a loop":
            return (right * n)[:n]
        if "garbage" in self._how:
            return right + super().answer(f"{prompt} noise", seed, n)[len(right) :]
        self._last = right + self._last[len(right) :]
        return self._last[:n]

    def pieces(self, words: list[str]) -> Iterator[str | float]:
        """The chunks of a reply, and the waits between them."""
        texts = [f"{word} " if word else "" for word in words]
        wait_s = self.step_s
        if self._how == "known text" and not self._is_known:
            yield 0.4  # long compared with what other tests delay a known one
        if self._how == "in pieces":
            texts = [text[at : at + 2] for text in texts for at in range(0, len(text), 2)]
        if self._how == "held":
            yield wait_s * len(texts)
            wait_s = 0.0001
        if self._how == "in bursts":
            for at in range(0, len(texts), 4):
                yield from texts[at : at + 4]
                yield 4 * wait_s
            return
        for text in texts:
            yield text
            yield wait_s

    def account(self, prompt: str, n: int, spent_s: float) -> dict[str, Any]:
        """Its usage and timings."""
        said = super().account(prompt, n, spent_s)
        n_new = len(prompt.split()) - self._cached
        own: dict[str, float] = {"prompt_n": n_new, "cache_n": self._cached}
        own |= {"prompt_ms": 1.0, "predicted_n": n, "predicted_ms": 1e3 * spent_s}
        own |= {"predicted_per_second": n / spent_s}
        if self._how in FALSE:
            own |= FALSE[self._how](own)
        return {**said, "timings": own}


def measured(project: Project, how: str, *workloads: str) -> pytest.RunResult:
    """Measure workloads on a server."""
    server = Other(how)
    project.config(engine="openai", default_model="asperf-target", max_cv="1000%")
    project.test(
        "\n".join(
            f"def test_{n}(throughput, latency):\n    assert {ASSERTED[workload]}\n"
            for n, workload in enumerate(workloads)
        )
    )
    result = project.run(f"--asperf-url=http://127.0.0.1:{server.endpoint.port}")
    server.close()
    return result


@pytest.mark.parametrize("how", HONEST)
def test_an_honest_server_passes(project: Project, how: str) -> None:
    """It may ignore seeds, never sample, or keep the answers to equal requests."""
    measured(project, how, "tg32", "ttft64").assert_outcomes(passed=2)


@pytest.mark.parametrize("how", ANSWERS)
def test_answers_that_are_not_computed_are_invalid(project: Project, how: str) -> None:
    """Each is found by further requests: the same again, other words, or fewer tokens."""
    workload, finding = ANSWERS[how]
    found = measured(project, how, workload).stdout
    found.fnmatch_lines(["test_it.py V*", f"{workload} served on openai: {finding}*"])


@pytest.mark.parametrize("how", FALSE)
def test_a_false_account_is_invalid(project: Project, how: str) -> None:
    """A server's own figures contradict one another, or the client's clock and count."""
    found = measured(project, how, "tg32").stdout
    found.fnmatch_lines(["test_it.py V*", "tg32 served on openai: false-account: *"])
