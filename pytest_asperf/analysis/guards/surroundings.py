"""The runs' spread, the machine they ran on, and the counters that their energy was read from."""

import math
from collections.abc import Collection, Mapping, Sequence
from itertools import accumulate
from typing import Final

from pytest_asperf.analysis.guards.guard import Guard, GuardFinding, figure, require_positive
from pytest_asperf.analysis.stats.estimate import percent_text
from pytest_asperf.errors import printable

#: Coefficient of variation of runs above which their mean is useless. Runs of llama-bench on
#: a quiet machine have below 1 %; the table in which Q6_K "dominates" Q5_K_M has 19 to 36 %.
CV_LIMIT: Final = 0.15

#: Apple's thermal pressure: 0 nominal, 1 moderate, 2 heavy, 3 trapping, 4 sleeping.
HEAVY_PRESSURE: Final = 2
#: Share of the highest clock of a run by which it may fall.
CLOCK_DROP: Final = 0.10
#: Share of a run's samples in which the clock may be throttled.
HELD_DOWN: Final = 0.10

#: Cores that other processes may use: half a core, on large machines a tenth of all.
FOREIGN_CORES: Final = 0.5
FOREIGN_SHARE: Final = 0.1

#: Share of a phase by which the window that its energy was read over may be longer or shorter, and
#: the samples by which it may miss at its ends. A requested period of 100 ms is really 108.
WINDOW_TOLERANCE: Final = 0.25
WINDOW_ENDS: Final = 2


def spread(mean: float, sd: float, n: int, *, limit: float = CV_LIMIT) -> GuardFinding | None:
    """Trip if runs vary too much, or are too few, for a mean; `limit` is of sd / mean."""
    require_positive(mean=mean, n=n)
    if not sd >= 0:
        raise ValueError(f"a standard deviation of {sd}")
    cv = sd / mean
    if n > 1 and cv <= limit:
        return None
    problem = f"{figure(mean)} ± {figure(sd)} over {n} runs vary by {percent_text(cv, 2)}"
    return Guard.SPREAD.finding(
        problem if n > 1 else f"{figure(mean)} rests on one run, whose spread is unknown",
        f"standard deviation / mean at most {percent_text(limit)} over two runs or more",
    )


def throttled(
    levels: Sequence[int] = (),
    clocks_mhz: Sequence[float] = (),
    held_down: Mapping[str, float] | None = None,
) -> GuardFinding | None:
    """Trip if a run was slowed down to cool.

    A high thermal pressure that falls from the start on is a machine that cools, and no throttling.
    Pressures are from before and during the run, on the scale of `HEAVY_PRESSURE`. `held_down` is
    the share of samples with a throttled clock, by the throttle's name.
    """
    faults = [
        f"{what} in {share:.0%} of the samples"
        for what, share in (held_down or {}).items()
        if share > HELD_DOWN
    ]
    rises = [
        (low, level)
        for low, level in zip(accumulate(levels, min), levels, strict=True)
        if level > low
    ]
    if rises:
        before, after = max(rises, key=lambda rise: rise[1] - rise[0])
        faults.append(f"thermal pressure rose from {before} to {after}")
    elif levels and min(levels) >= HEAVY_PRESSURE:
        faults.append(f"thermal pressure was {min(levels)} or more throughout")
    if clocks_mhz and min(clocks_mhz) < (1 - CLOCK_DROP) * max(clocks_mhz):
        low, high = min(clocks_mhz), max(clocks_mhz)
        faults.append(
            f"the clock fell from {figure(high)} to {figure(low)} MHz, {low / high - 1:.0%}"
        )
    if not faults:
        return None
    return Guard.THROTTLED.finding(
        "; ".join(faults),
        f"thermal pressure neither rises during a run nor stays at {HEAVY_PRESSURE} (heavy), the "
        f"clock falls by no more than {CLOCK_DROP:.0%}, and it is throttled to cool in no more "
        f"than {HELD_DOWN:.0%} of the samples",
    )


def host_busy(other_cores: float, cores: int | None) -> GuardFinding | None:
    """Trip if other processes, and other guests of the hypervisor, used much during a run.

    The cores that they kept busy are an average over the run, without this process and its
    children.
    """
    allowed = other_cores_allowed(cores)
    if other_cores <= allowed:
        return None
    return Guard.HOST_BUSY.finding(
        f"others kept {other_cores:.1f} of {cores or '?'} cores busy during the measurement",
        f"at most {allowed:.2g} cores on average: {FOREIGN_CORES:g}, or {FOREIGN_SHARE:.0%} of all",
    )


def other_cores_allowed(cores: int | None) -> float:
    """How many of a machine's logical cores other processes may keep busy."""
    return max(FOREIGN_CORES, FOREIGN_SHARE * (cores or 0))


def impure_window(n_samples: int, period_s: float, phase_s: float) -> GuardFinding | None:
    """Trip if energy was read over another time than its phase.

    The period is of one sample, as measured; a requested one is a few per cent too short.
    """
    require_positive(n_samples=n_samples, period_s=period_s, phase_s=phase_s)
    window_s = n_samples * period_s
    if abs(window_s - phase_s) <= WINDOW_TOLERANCE * phase_s + WINDOW_ENDS * period_s:
        return None
    return Guard.IMPURE_WINDOW.finding(
        f"{n_samples} samples of {period_s:.3g} s are {figure(window_s)} s, "
        f"{window_s / phase_s:.3g} times the phase of {figure(phase_s)} s",
        f"samples x period within {WINDOW_TOLERANCE:.0%} of the phase and {WINDOW_ENDS} samples",
    )


def joules_per_token(
    watts: float, joules_per_token: float, baseline_watts: float, baseline_joules_per_token: float
) -> GuardFinding | None:
    """Trip if a variant with less power has more energy for the same tokens."""
    require_positive(
        watts=watts,
        joules_per_token=joules_per_token,
        baseline_watts=baseline_watts,
        baseline_joules_per_token=baseline_joules_per_token,
    )
    if watts >= baseline_watts or joules_per_token <= baseline_joules_per_token:
        return None
    return Guard.JOULES_PER_TOKEN.finding(
        f"{watts:.3g} W against {baseline_watts:.3g} W, but {joules_per_token:.3g} J/token against "
        f"{baseline_joules_per_token:.3g}: {joules_per_token / baseline_joules_per_token:.3g} "
        "times the energy",
        "less power is a saving where it is less energy for the same tokens",
    )


def coefficient_of_variation(values: Sequence[float]) -> tuple[float, float, int]:
    """Mean, sample standard deviation and count, the arguments of `spread`."""
    n = len(values)
    mean = math.fsum(values) / n
    return mean, math.sqrt(math.fsum((v - mean) ** 2 for v in values) / max(n - 1, 1)), n


#: Share of the phase that may pass without work of the engine: the power of gaps is not the work's.
MOST_IDLE: Final = 0.25
#: By how much counter and power may differ. NVIDIA's averaged power integrates to the counter
#: within 1 %, also where the load is switched on and off.
COUNTER_TOLERANCE: Final = 0.10
#: Rails without which the energy of a GPU's or a processor's work is not that of the machine.
_OF_A_MACHINE: Final = ("package", "cpu")


def dead_counter(name: str) -> GuardFinding:
    """The finding on a counter that did not move while its device was at work."""
    return Guard.DEAD_COUNTER.finding(
        f"{printable(name, 80)} did not move under load",
        "the counter of the device that works rises; one that does not is dead",
    )


def restarted_counter(name: str) -> GuardFinding:
    """The finding on a counter that fell within a window."""
    return Guard.DEAD_COUNTER.finding(
        f"{printable(name, 80)} fell during the measurement: it was reset, or its driver restarted",
        "a counter only rises, except where the hardware documents that it wraps",
    )


def short_window(name: str, n_updates: int, least: int) -> GuardFinding | None:
    """Trip if a window covers too few updates of its counter."""
    if n_updates >= least:
        return None
    return Guard.SHORT_WINDOW.finding(
        f"the window covers {n_updates} updates of {printable(name, 80)}",
        f"at least {least} updates",
    )


def idle_gaps(busy_s: float, wall_s: float) -> GuardFinding | None:
    """Trip if the engine did not work for much of the phase that its energy was read over."""
    idle = 1 - busy_s / wall_s
    if idle <= MOST_IDLE:
        return None
    return Guard.IMPURE_WINDOW.finding(
        f"the engine worked in {figure(busy_s)} of {figure(wall_s)} s",
        f"gaps between runs are at most {MOST_IDLE:.0%} of the phase",
    )


def counter_disagrees(name: str, counter_w: float, power_w: float) -> GuardFinding | None:
    """Trip if a counter and the power that another source gives do not belong together."""
    if abs(counter_w - power_w) <= COUNTER_TOLERANCE * max(counter_w, power_w):
        return None
    return Guard.COUNTER_AGAINST_POWER.finding(
        f"{printable(name, 80)} counts {figure(counter_w)} W, and the other counter shows "
        f"{figure(power_w)} W",
        f"both agree within {COUNTER_TOLERANCE:.0%}",
    )


def idle_rails(rails: Collection[str], *, on_gpu: bool) -> GuardFinding | None:
    """Trip if the working device is not among the rails, so that the figure is of an idle one."""
    worked = ("gpu",) if on_gpu else _OF_A_MACHINE
    if any(rail in rails for rail in worked):
        return None
    return Guard.RAIL_COVERAGE.finding(
        f"the model ran on the {'GPU' if on_gpu else 'processor'}, and what is measured is "
        f"{', '.join(rails) or 'no rail'}",
        "the rail that does the work is measured",
    )


def rail_coverage(rails: Collection[str], *, on_gpu: bool) -> GuardFinding | None:
    """Trip if some rails count as the machine: its processor, and its GPU if that works."""
    lacking = [] if any(rail in rails for rail in _OF_A_MACHINE) else ["cpu"]
    lacking += ["gpu"] if on_gpu and "gpu" not in rails else []
    if not lacking:
        return None
    return Guard.RAIL_COVERAGE.finding(
        f"{', '.join(rails) or 'no rail'} measured, and {' and '.join(lacking)} not: this is not "
        "the energy of the machine",
        "the machine's energy includes its processor, and its GPU if the model runs there",
    )
