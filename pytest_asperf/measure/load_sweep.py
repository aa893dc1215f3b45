"""A sweep over loads of a running server: users of a closed loop, or rates of an open one.

Loads run in random order, so that a drift of the machine is no effect of the load.
"""

import random
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from typing import Final

from pytest_asperf.analysis import guards
from pytest_asperf.analysis import serving_metrics as metrics
from pytest_asperf.analysis.guards import GuardFinding
from pytest_asperf.analysis.serving_metrics import LoadPoint, ServedRequest, ServiceLimits
from pytest_asperf.errors import MeasurementError
from pytest_asperf.worker.engine import RefusalError
from pytest_asperf.worker.openai_engine import OpenAiEngine, OpenAiModel
from pytest_asperf.worker.serving.events import read_reply, request_facts
from pytest_asperf.worker.serving.load import client_cost, closed_loop, open_loop, poisson_arrivals
from pytest_asperf.worker.serving.record import StreamRecord

#: Replies that each user gets at least, so that all are under way for most of the time.
_EACH: Final = 2


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
class Target:
    """A running server, and the model in its requests."""

    engine: OpenAiEngine
    model: OpenAiModel


def find_server(url: str, model: str, key_variable: str) -> Target:
    """The server at a URL; MeasurementError if it does not answer or lacks the model."""
    with _refusals_of(url):
        engine = OpenAiEngine(url, key_variable)
        return Target(engine, engine.load(model or "served", {}))


def sweep(
    target: Target,
    loads: Sequence[float],
    work: LoadWork,
    *,
    on_load: Callable[[float], None] = lambda _: None,
) -> list[MeasuredLoad]:
    """Measure a server at each load, and give them in ascending order."""
    found = []
    with _refusals_of(str(target.engine.endpoint)):
        prompt = target.model.new_prompt(work.text, work.n_prompt)
        target.model.request(prompt, work.n_output)  # warm-up
        shuffled = random.Random(work.seed).sample(loads, len(loads))  # noqa: S311  # repeatable
        for load in shuffled:
            on_load(load)
            found.append(_measured(target.model, load, work))
    return sorted(found, key=lambda one: one.load)


@contextmanager
def _refusals_of(url: str) -> Iterator[None]:
    try:
        yield
    except RefusalError as refusal:
        raise MeasurementError(
            f"{url}: {refusal}",
            remedy="check that the server runs, and the URL, the model and the key",
        ) from refusal


def _measured(served: OpenAiModel, load: float, work: LoadWork) -> MeasuredLoad:
    users = None if work.is_open else int(load)
    n = work.n_requests if users is None else max(work.n_requests, _EACH * users)
    prompts = [served.new_prompt(work.text, work.n_prompt) for _ in range(n)]
    cost = client_cost(users or 1)
    before = served.state()

    def ask(number: int, intended_ns: int) -> StreamRecord:
        return served.request(prompts[number], work.n_output, intended_ns)

    if users is None:
        records = open_loop(ask, poisson_arrivals(load, n, work.seed))
    else:
        records = closed_loop(ask, users, n)
    done = tuple(
        ServedRequest(
            **request_facts(
                record, read_reply(record), from_intended=work.is_open, lag_ns=cost.lag_p50_ns
            )
        )
        for record in records
    )
    after = served.state()
    model = str(served.facts["description"])
    asked = guards.ServedWork(n_users=users, n_output=work.n_output, model=model)
    found = guards.served_requests(asked, done, (before, after))
    queued = guards.queueing(done, users, after.get("slots")) if users else None
    return MeasuredLoad(load, done, (*found, *([queued] if queued else [])))
