"""A sweep over loads of a running server: users of a closed loop, or rates of an open one.

Loads run in random order, so that a drift of the machine is no effect of the load. After the last
one a random reply is examined as that of a test.
"""

import random
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from typing import Final

from pytest_asperf.analysis import guards
from pytest_asperf.analysis import serving_metrics as metrics
from pytest_asperf.analysis.guards import GuardFinding
from pytest_asperf.analysis.serving_metrics import LoadPoint, ServedRequest, ServiceLimits
from pytest_asperf.config.progress import Progress
from pytest_asperf.config.workload import Workload
from pytest_asperf.engine_process import remedy_of
from pytest_asperf.errors import MeasurementError
from pytest_asperf.measure.lone_server import (
    SEEDS,
    ExaminedServer,
    LoneServer,
    SentAgain,
    Timed,
    TimedAnswer,
    parsed_answer,
)
from pytest_asperf.worker.engine import RefusalError
from pytest_asperf.worker.openai_engine import OpenAiEngine, OpenAiModel
from pytest_asperf.worker.serving.events import request_facts
from pytest_asperf.worker.serving.load import client_cost, closed_loop, open_loop, poisson_arrivals
from pytest_asperf.worker.serving.record import StreamRecord

#: Replies that each user gets at least, so that all are under way for most of the time.
_EACH: Final = 2
#: Users whose replies are compared with each alone if the loads are requests per second.
_OPEN_USERS: Final = 4


@dataclass(frozen=True, slots=True)
class LoadWork:
    """The work at every load."""

    is_open: bool  #: True if loads are requests per second, False if they are users
    n_prompt: int
    n_output: int
    n_requests: int
    limits: ServiceLimits
    text: str  #: source of prompts
    seed: int

    def name(self, load: float) -> str:
        """A load in words."""
        return f"{load:g}/s" if self.is_open else f"{load:g} user{'s' * (load > 1)}"


@dataclass(frozen=True)
class MeasuredLoad:
    """The results of a server at one load."""

    load: float
    requests: tuple[ServedRequest, ...]
    findings: tuple[GuardFinding, ...]

    @cached_property
    def point(self) -> LoadPoint | None:
        """The point of the curve; None if no request was answered."""
        if not metrics.complete(self.requests):
            return None
        return metrics.load_point(self.load, self.requests)


@dataclass(frozen=True, slots=True)
class MeasuredSweep:
    """The results of a server at all loads."""

    loads: tuple[MeasuredLoad, ...]  #: in ascending order
    examined: ExaminedServer | None  #: one of the replies; None if none was complete

    @property
    def is_invalid(self) -> bool:
        """True if a guard finds a load invalid, or the timed replies."""
        found = [finding for one in self.loads for finding in one.findings]
        found += self.examined.findings if self.examined else ()
        return any(finding.consequence == "INVALID" for finding in found)


@dataclass(frozen=True, slots=True)
class Target:
    """A running server, and the model in its requests."""

    engine: OpenAiEngine
    model: OpenAiModel


def find_server(url: str, model: str, key_variable: str) -> Target:
    """The server at a URL; MeasurementError if it does not answer or lacks the model."""
    with _refusals():
        engine = OpenAiEngine(url, key_variable)
        return Target(engine, engine.load(model or "served", {}))


def sweep(
    target: Target,
    loads: Sequence[float],
    work: LoadWork,
    progress: Progress,
) -> MeasuredSweep:
    """Measure a server at each load, and examine one of its replies."""
    coin = random.Random(work.seed)  # noqa: S311  # repeatable
    sender = _Sender(target.model, work, coin)
    with _refusals():
        progress(f"finding a prompt of {work.n_prompt} tokens", 0, 0)
        prompt = sender.prompt()
        progress("warming up", 0, 0)
        target.model.replies.read(sender.ask(prompt, 0))
        found = []
        for number, load in enumerate(coin.sample(loads, len(loads))):
            progress(f"load of {work.name(load)}", number, len(loads))
            found.append(sender.measured(load))
        progress("examining a reply", 0, 0)
    ascending = sorted(found, key=lambda one: one.load)
    n_users = _OPEN_USERS if work.is_open else int(max(loads))
    return MeasuredSweep(tuple(ascending), sender.examined(n_users))


@contextmanager
def _refusals() -> Iterator[None]:
    try:
        yield
    except RefusalError as refusal:
        remedy = remedy_of(refusal.kind, "openai", "serve")
        raise MeasurementError(str(refusal), remedy=remedy) from refusal


@dataclass(frozen=True, slots=True)
class _Sender:
    """Sends the requests of a sweep, and keeps those with a whole reply."""

    model: OpenAiModel
    work: LoadWork
    coin: random.Random
    timed: list[Timed] = field(default_factory=list)

    def prompt(self) -> str:
        """A prompt that the server has not seen."""
        return self.model.prompts.draw(self.work.text, self.work.n_prompt)

    def ask(self, prompt: str, seed: int, intended_ns: int | None = None) -> StreamRecord:
        """Send a request, and read its reply of any kind."""
        return self.model.request(prompt, self.work.n_output, seed, intended_ns)

    def measured(self, load: float) -> MeasuredLoad:
        """Measure the server at one load."""
        work = self.work
        users = None if work.is_open else int(load)
        n = work.n_requests if users is None else max(work.n_requests, _EACH * users)
        asked = [(self.prompt(), self.coin.randrange(SEEDS)) for _ in range(n)]
        cost = client_cost(users or 1)
        before = self.model.state()

        def ask(number: int, intended_ns: int) -> StreamRecord:
            return self.ask(*asked[number], intended_ns)

        if users is None:
            records = open_loop(ask, poisson_arrivals(load, n, work.seed))
        else:
            records = closed_loop(ask, users, n)
        done = [
            self._reply(record, *of, cost.lag_p50_ns)
            for record, of in zip(records, asked, strict=True)
        ]
        requests = tuple(request for request, _ in done)
        after = self.model.state()
        model = str(self.model.facts["description"])
        expected = guards.ServedWork(n_users=users, n_output=work.n_output, model=model)
        found = guards.served_requests(expected, requests, (before, after))
        queued = guards.queueing(requests, users, after.get("slots")) if users else None
        self.timed.extend(filter(self._is_whole, done))
        return MeasuredLoad(load, requests, (*found, *([queued] if queued else [])))

    def _reply(self, record: StreamRecord, prompt: str, seed: int, lag_ns: int) -> Timed:
        reply = self.model.replies.read(record)
        facts = request_facts(record, reply, from_intended=self.work.is_open, lag_ns=lag_ns)
        if facts["n_output"] is None and reply.finish == "length":  # no usage in its streams
            facts["n_output"] = self.work.n_output
        return ServedRequest(**facts), TimedAnswer(prompt, seed, self.work.n_output, reply.text)

    def _is_whole(self, timed: Timed) -> bool:
        request, _ = timed
        return request.is_complete and request.n_output in {None, self.work.n_output}

    def examined(self, n_users: int) -> ExaminedServer | None:
        """Examine a random reply as that of a test of so many users; None if none is whole."""
        if not self.timed:
            return None
        workload = Workload("request", self.work.n_output, self.work.n_prompt, users=n_users)
        together, count = self.model.answers_together, self.model.text_tokens
        server = LoneServer(self._again, together, count, self._next, workload, self.coin)
        try:
            return server.examine(self.coin.choice(self.timed))
        except RefusalError as refusal:
            return ExaminedServer(server.n_requests, (guards.failed_examination(str(refusal)),))

    def _again(self, asked: TimedAnswer, temperature: float) -> SentAgain:
        return parsed_answer(
            self.model.answer_again(asked.prompt, asked.n_tokens, asked.seed, temperature)
        )

    def _next(self) -> Timed | None:
        """A request of one user; None if its reply is shorter, an error if it has a fault."""
        prompt, seed = self.prompt(), self.coin.randrange(SEEDS)
        record = self.ask(prompt, seed)
        self.model.checked(record)
        timed = self._reply(record, prompt, seed, 0)
        return timed if self._is_whole(timed) else None
