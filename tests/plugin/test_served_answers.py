"""A gate of two servers knows if timed answers are computed: replays and garbage are no PASS."""

import itertools
from collections.abc import Callable, Iterator

import pytest

from tests.plugin.conftest import Project
from tests.served import WordServer

GATE = """
def test_gate(gate):
    assert_no_regression(gate("tg32"), tolerance="100%")
"""
Answers = Callable[["Cheat", str, "int | None", int], "list[str]"]


class Cheat(WordServer):
    """A server with answers of its own making; `sound` are the baseline's."""

    step_s = 0.0013  # 1.15 times as fast

    def __init__(self, answers: Answers) -> None:
        self._answers = answers
        self._known: dict[str, list[str]] = {}
        self._numbers = itertools.count()
        super().__init__()

    def sound(self, prompt: str, seed: int | None, n: int) -> list[str]:
        """The answer of the model."""
        return super().answer(prompt, seed, n)

    def answer(self, prompt: str, seed: int | None, n: int) -> list[str]:
        """The answer of the cheat."""
        return self._answers(self, prompt, seed, n)


def canned(_: Cheat, _prompt: str, _seed: int | None, n: int) -> list[str]:
    """The same words for all."""
    return ["word"] * n


def replayed(server: Cheat, prompt: str, seed: int | None, n: int) -> list[str]:
    """The model's own first answer, to all prompts that end alike."""
    known = server._known.setdefault(prompt[-8:], server.sound(prompt, seed, 64))
    return known[:n]


def garbage(server: Cheat, prompt: str, seed: int | None, n: int) -> list[str]:
    """Some right words, and others after them, each time the same."""
    return [*server.sound(prompt, seed, 8), *["word"] * (n - 8)]


def random_words(server: Cheat, prompt: str, _seed: int | None, n: int) -> list[str]:
    """Other words each time."""
    return server.sound(f"{prompt}{next(server._numbers)}", 0, n)


def other_model(server: Cheat, prompt: str, seed: int | None, n: int) -> list[str]:
    """Another model's answers, which it can give again."""
    return server.sound(f"other {prompt}", seed, n)


def honest_if_greedy(server: Cheat, prompt: str, seed: int | None, n: int) -> list[str]:
    """Right only where the likeliest words are requested."""
    return server.sound(prompt, seed, n) if seed is None else canned(server, prompt, seed, n)


def wrong_end(server: Cheat, prompt: str, seed: int | None, n: int) -> list[str]:
    """Other words after more than half of an answer, each time the same."""
    right = server.sound(prompt, seed, n)[:20]
    return [*right, *server.sound(f"{prompt} noise", seed, n)[len(right) :]]


def shortened(server: Cheat, prompt: str, seed: int | None, n: int) -> list[str]:
    """The model's answer without its last fifth, and the usage of the whole one."""
    return server.sound(prompt, seed, n)[: n - n // 5]


CHEATS = (
    *(canned, replayed, garbage, random_words, other_model, honest_if_greedy, wrong_end),
    shortened,
)


@pytest.fixture
def base() -> Iterator[WordServer]:
    """The baseline's server."""
    server = WordServer()
    server.step_s = 0.0015
    yield server
    server.close()


def judged(
    project: Project, base: WordServer, candidate: WordServer, *options: str
) -> pytest.RunResult:
    """Gate one server against the other."""
    project.config(engine="openai", default_model="asperf-target", max_cv="1000%")
    project.test(GATE)
    urls = (f"http://127.0.0.1:{server.endpoint.port}" for server in (base, candidate))
    builds = ("--asperf-baseline", "--asperf-candidate")
    given = [f"{build}={url}" for build, url in zip(builds, urls, strict=True)]
    result = project.run(*given, "--asperf-max-seconds=30", "-v", *options)
    candidate.close()
    return result


@pytest.mark.parametrize("cheat", CHEATS, ids=lambda cheat: cheat.__name__)
def test_a_cheating_server_is_no_pass(project: Project, base: WordServer, cheat: Answers) -> None:
    """At a gain of 1.15 times: the answers are not those of the baseline's model."""
    result = judged(project, base, Cheat(cheat), "--asperf-max-pairs=1")
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["*timed-work: candidate: *"])


def test_a_server_of_the_same_model_passes(project: Project, base: WordServer) -> None:
    """Its answers are the baseline's, to the last word."""
    result = judged(project, base, Cheat(Cheat.sound))
    result.assert_outcomes(passed=1)


def test_builds_that_choose_otherwise_by_a_seed_pass(project: Project, base: WordServer) -> None:
    """A sampler may change, if the likeliest answers are the same."""

    def chosen(server: Cheat, prompt: str, seed: int | None, n: int) -> list[str]:
        return server.sound(prompt, seed and seed + 1, n)

    judged(project, base, Cheat(chosen)).assert_outcomes(passed=1)
