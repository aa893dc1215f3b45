"""Options, markers and hooks (docs/plugins.md), as they are registered with pytest.

Loaded in every pytest run of its user's environment, so its readers are in `config`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import pytest

from pytest_asperf.config.settings import DECLARED, OPTIONS, help_text

if TYPE_CHECKING:
    from _pytest.terminal import TerminalReporter

    from pytest_asperf.analysis.verdict import JudgedRecord
    from pytest_asperf.records.kinds import Noted

MARKERS: Final = (
    "model(name, engine=None, **settings): the model to measure, with settings over its own",
    "quant(name): the quantization to measure the model at",
    (
        'quant_ladder(*quants, baseline="F16", chunks=None): run the test once per quantization, '
        "or quantization of another model (name:QUANT), against the baseline, on at most so many "
        "chunks"
    ),
    'kv_ladder(*types, chunks=None): run the test per type of KV cache ("q8_0", on mlx "8bit")',
    (
        "speculative(draft, target, k=4, **settings): the pair whose speculation is measured; "
        "settings are temperature, n_tokens, rollback and prompts"
    ),
    "hardware(*names, min_memory_gb, min_cpu_cores, min_gpu_cores): skip on other machines",
)

#: Pytest's options that run no test, by their places in its configuration.
_LISTINGS: Final = ("collectonly", "showfixtures", "show_fixtures_per_test", "setuponly")


def was_configured(config: pytest.Config) -> bool:
    """True if any of the options was given."""
    return any(config.getoption(f"asperf_{key}", None) is not None for key in OPTIONS.values())


def only_lists(config: pytest.Config) -> bool:
    """True if pytest lists tests or fixtures, or plans, and runs no test."""
    return any(config.getoption(name, default=False) for name in _LISTINGS)


def add_options(parser: pytest.Parser) -> None:
    """Register the options of a run."""
    group = parser.getgroup("asperf", "performance of local LLM inference")
    # Without a default, because only typed options may override the configuration file.
    for option, key in OPTIONS.items():
        group.addoption(
            option,
            dest=f"asperf_{key}",
            metavar=DECLARED[key].metavar,
            help=help_text(key).replace("%", "%%"),  # argparse formats it
            action="append" if DECLARED[key].is_list else "store",
        )


@pytest.hookspec(firstresult=True)
def pytest_asperf_judged(item: pytest.Item, record: JudgedRecord) -> JudgedRecord | None:
    """Give a verdict labels (`about`), or the reason why it fails no test (`excused`).

    Called for each verdict of a test, and for each measurement that broke. Return a changed copy,
    made with `dataclasses.replace`, or None to leave it as it is.
    """


@pytest.hookspec
def pytest_asperf_summary(terminalreporter: TerminalReporter, noted: list[Noted]) -> None:
    """Print verdicts in a form of your own before asperf's table; remove these from the list."""
