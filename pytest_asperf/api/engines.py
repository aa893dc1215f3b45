"""The `engines` fixture and `assert_faster`: one model on two engines."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar

from pytest_asperf.analysis.limit_verdict import parse_percent
from pytest_asperf.api.measurement_context import FixtureValue, settle
from pytest_asperf.config.engines import parse_engine, parse_level
from pytest_asperf.config.workload import parse_workload
from pytest_asperf.errors import ConfigError
from pytest_asperf.measure.ab_speed import SpeedExperiment
from pytest_asperf.measure.engine_matching import (
    BITS_WITHIN,
    EngineComparison,
    matching_level,
    require_matched_bits,
    terms_of,
)
from pytest_asperf.measure.model_locator import require_one_model
from pytest_asperf.measure.runner import ComparedSide
from pytest_asperf.verdicts.ratio import alike_verdict, cost_of_serving, faster_verdict

if TYPE_CHECKING:
    from collections.abc import Callable

    from pytest_asperf.analysis.verdict import Verdict
    from pytest_asperf.api.measurement_context import Record
    from pytest_asperf.config.engines import Engine
    from pytest_asperf.config.spec import ModelRef
    from pytest_asperf.measure.ab_speed import Budget
    from pytest_asperf.measure.runner import MeasurementRunner


@dataclass(frozen=True)
class Engines(FixtureValue):
    """The `engines` fixture: the test's model on any two engines, for `assert_faster`.

    Attributes:
        level: the level that the test's markers name, of whichever engine; None for F16.
    """

    level: str | None
    find: Callable[[Engine, str | None], ModelRef]
    runner: Callable[[Engine], MeasurementRunner]
    budget: Budget
    record: Record

    example: ClassVar = 'assert_faster(engines, "mlx", than="llama_cpp", on="tg128")'

    def __repr__(self) -> str:
        return f"<Engines at {self.level or 'F16'}>"

    def compare(
        self, first: str, second: str, on: str, *, budget: Budget, bits_within: float = BITS_WITHIN
    ) -> EngineComparison:
        """The pairs of two engines, measured unless the same claim was made before.

        Args:
            first: an engine, `mlx`, with or without its level, `mlx:4bit`.
            second: the other, likewise.
            on: the workload.
            budget: the claim, and what deciding it may cost.
            bits_within: by how much bits per weight may differ, a fraction.

        Raises:
            ConfigError: no such engine, level or workload, the same engine twice, or a level that
                the other engine has no match for.
            ModelError: bits per weight differ by more, or an engine cannot have the model.
            EngineError: an engine is not installed, refused or died.
        """
        workload = parse_workload(on, where="assert_faster: on")
        (engine, level), (base_engine, base_level) = named = _named(first), _named(second)
        if engine == base_engine:
            raise ConfigError(
                f"assert_faster: {engine} is named twice",
                why="two engines are compared; settings or builds of one are what gate compares",
                remedy="name two engines, as in "
                'assert_faster(engines, "mlx", than="llama_cpp", on="tg128")',
            )
        of_both = level or base_level or self.level or "F16"
        refs = [self._ref(engine, level, of_both) for engine, level in named]
        runners = [self.runner(engine) for engine, _ in named]
        model, base = (r.locate(ref) for r, ref in zip(runners, refs, strict=True))
        require_one_model((model.ref.title, model.info), (base.ref.title, base.info))
        require_matched_bits((model, base), bits_within)
        runner, base_runner = runners
        sides = ComparedSide(base_runner, (base.ref,)), ComparedSide(runner, (model.ref,))
        result = base_runner.compare(sides, SpeedExperiment((workload,), budget))
        terms = terms_of(
            (base, model),
            result.ran,
            same_tokens=result.same_tokens,
            source_sha256=runner.source_sha256(model.ref.spec),
        )
        return EngineComparison(result, (base_engine, engine), terms)

    def _ref(self, engine: Engine, level: str | None, of_both: str) -> ModelRef:
        """The model on an engine, at the level named with it or at the nearest one that it has."""
        if level is None:
            level = matching_level(of_both, engine, where="assert_faster")
        return self.find(engine, level)


def _named(text: str) -> tuple[Engine, str | None]:
    """Read `mlx` or `mlx:4bit`."""
    name, colon, level = text.partition(":")
    engine = parse_engine(name, where="assert_faster")
    return engine, parse_level(level, where="assert_faster", engine=engine) if colon else None


def assert_faster(
    engines: Engines,
    faster: str = "",
    *,
    than: str,
    on: str,
    by: str | float = 0.0,
    bits_within: str | float = BITS_WITHIN,
) -> Verdict:
    """Claim that one engine is faster than another on the same weights at matched levels.

    Both run in pairs until the answer is decided, as the builds of a gate do. The verdict lists
    what is matched between the engines and what is not.

    Args:
        engines: the fixture; its model and level are those of the test's markers, F16 by default.
        faster: the engine claimed to be faster, `"mlx"`. If it does not have the level, it runs the
            nearest in bits per weight; `"mlx:4bit"` names one.
        than: the engine claimed to be slower, likewise.
        on: the workload: `"tg128"`, `"pp512"`, `"tg128@d1024"`, `"ttft512"`.
        by: how much faster it is claimed to be, `"10%"` or a fraction of the other's rate.
        bits_within: by how much the bits per weight of the two files may differ.

    Raises:
        VerdictError: the verdict is not a PASS.
        ConfigError: no such engine or level, the same engine twice, or no level that matches.
        AsperfError: a model that an engine cannot have, or an engine that is missing or died.
    """
    __tracebackhide__ = True
    if not isinstance(engines, Engines) or not faster:  # type: ignore[redundant-expr]  # or a name
        raise ConfigError(
            "assert_faster needs the fixture engines, and then the engine claimed to be faster",
            why="which model is measured, and where it is noted, comes from the test's fixture",
            remedy="let the test take engines, and write "
            'assert_faster(engines, "mlx", than="llama_cpp", on="tg128")',
        )
    least = parse_percent(by, where="assert_faster: by")
    within = parse_percent(bits_within, where="assert_faster: bits_within")
    budget = engines.budget.faster_by(least)
    versus = engines.compare(faster, than, on, budget=budget, bits_within=within)
    return _settled(engines, versus, faster_verdict(versus, least))


def engines_alike(engines: Engines, first: str, second: str, on: str, within: float) -> Verdict:
    """Settle the claim that a model runs as fast on one engine as on another."""
    __tracebackhide__ = True
    budget = replace(engines.budget, claim=(1 / (1 + within), 1 + within))
    versus = engines.compare(first, second, on, budget=budget)
    return _settled(engines, versus, alike_verdict(versus, within))


def _settled(engines: Engines, versus: EngineComparison, verdict: Verdict) -> Verdict:
    __tracebackhide__ = True
    note = "\n".join((*verdict.details[:2], *cost_of_serving(versus)))
    return settle(verdict, engines.record, note=note, interrupted=versus.result.interrupted)
