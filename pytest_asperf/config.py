"""Options and markers to frozen settings: the part of the shell that pytest hands its words to.

Imported in every pytest run of its user's environment, so what it parses into is imported only
once there is something to parse.
"""

# ruff: noqa: PLC0415  # the docstring says why

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final, TypeVar

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pytest_asperf.catalogue import Catalogue
    from pytest_asperf.marks import Marks
    from pytest_asperf.settings import Settings

T = TypeVar("T")

MARKERS: Final = (
    "model(address, engine=None, **settings): the model to measure, with settings over its own",
    "quant(level): the quantisation level to measure the model at",
    (
        'quant_ladder(*levels, baseline="F16", chunks=None): run the test once per level, or '
        "address of another model at a level, against the baseline, on at most so many chunks"
    ),
    'kv_ladder(*types, chunks=None): run the test per type of KV cache ("q8_0", on mlx "8bit")',
    (
        "speculative(draft, target, k=4, **settings): the pair whose speculation is measured; "
        "settings are temperature, n_tokens, rollback and prompts"
    ),
    "finding(id): the published finding that the test measures; elsewhere it is judged as recorded",
    "hardware(*names, min_memory_gb, min_cpu_cores, min_gpu_cores): skip the test elsewhere",
)

#: By option: the key of `[tool.asperf]` that it overrides, its metavar and help. argparse is given
#: no default, because only what a user typed may override the configuration file.
_OPTIONS: Final = {
    "--asperf-hardware": (
        "hardware",
        "NAME|auto",
        "hardware profile to hold numbers against; auto is this machine (default: auto)",
    ),
    "--asperf-engine": ("engine", "NAME", "llama_cpp or mlx (default: llama_cpp)"),
    "--asperf-source": (
        "source",
        "auto|live|recorded",
        "measure or replay; auto measures where the profile is this machine (default: auto)",
    ),
    "--asperf-inconclusive": (
        "inconclusive",
        "fail|xfail|skip",
        "what becomes of a test that could not be decided (default: fail)",
    ),
    "--asperf-model": (
        "default_model",
        "ADDRESS",
        "model of tests without a marker: name, name:LEVEL or a path (default: asperf-target)",
    ),
    "--asperf-repetitions": (
        "repetitions",
        "N",
        "repetitions of a throughput workload (default: 10)",
    ),
    "--asperf-chunks": ("chunks", "N|all", "chunks that perplexity is taken over (default: 40)"),
    "--asperf-python": (
        "python",
        "PATH",
        "interpreter that the engine runs in (default: the one that runs pytest)",
    ),
    "--asperf-tools": ("tools", "PATH", "folder of llama.cpp's programs, for llama_tools"),
    "--asperf-baseline": (
        "baseline",
        "BUILD",
        "build that a gate compares with: NAME or PATH[,key=value] (default: current)",
    ),
    "--asperf-candidate": ("candidate", "BUILD", "build that a gate judges"),
    "--asperf-tolerance": ("tolerance", "SHARE", "slowdown that a gate accepts (default: 5%)"),
    "--asperf-max-pairs": ("max_pairs", "N", "pairs after which a gate gives up (default: 60)"),
    "--asperf-max-seconds": (
        "max_seconds",
        "S",
        "seconds after which a gate begins no further pair (default: 300)",
    ),
    "--asperf-max-cv": (
        "max_cv",
        "SHARE",
        "standard deviation / mean of runs from which a rate decides nothing (default: 15%)",
    ),
    "--asperf-seed": ("seed", "N", "seed of every random order (default: drawn, and printed)"),
    "--asperf-self-check": (
        "self_check",
        "K",
        "hold the baseline against itself before every K-th gate of this machine (default: never)",
    ),
    "--asperf-report": (
        "report",
        "FORMAT:PATH",
        "write a report, as in json:out.json, or pictures, plots:FOLDER; repeatable",
    ),
}
_COUNTS: Final = frozenset(
    {"repetitions", "chunks", "max_pairs", "max_seconds", "seed", "self_check"}
)


def was_configured(config: pytest.Config) -> bool:
    """Tell whether any of the options was given."""
    keys = (key for key, _, _ in _OPTIONS.values())
    return any(config.getoption(f"asperf_{key}", None) is not None for key in keys)


def add_options(parser: pytest.Parser) -> None:
    """Register the options of a run."""
    group = parser.getgroup("asperf", "performance of local LLM inference")
    for option, (key, metavar, text) in _OPTIONS.items():
        group.addoption(
            option,
            dest=f"asperf_{key}",
            metavar=metavar,
            help=text,
            action="append" if key == "report" else "store",
        )


@contextmanager
def usage_errors() -> Iterator[None]:
    """Turn an unusable option or configuration file into pytest's own usage error."""
    from pytest_asperf.errors import AsperfError

    try:
        yield
    except AsperfError as error:
        raise pytest.UsageError(str(error)) from error


def parse_settings(config: pytest.Config, catalogue: Catalogue) -> Settings:
    """Return the settings of a run: defaults, the configuration file, then the options over it.

    Raises:
        ConfigError: an option is not usable; see `usage_errors`.
    """
    from dataclasses import replace

    from pytest_asperf.errors import ConfigError
    from pytest_asperf.settings import parse_values

    options = {key: option for option, (key, _, _) in _OPTIONS.items()}
    given = {
        key: _number(key, value)
        for key in options
        if (value := config.getoption(f"asperf_{key}")) is not None
    }
    folder = config.invocation_params.dir
    values = parse_values(given, where=options.__getitem__, folder=folder)
    settings = replace(catalogue.settings, **values)
    if chosen := [key for key in ("default_model", "engine") if key in values]:
        found = replace(catalogue, settings=settings)
        found.find(settings.default_model, where=options[chosen[0]])
    if "tools" in values and settings.engine != "llama_tools":
        raise ConfigError(
            f"--asperf-tools names a folder, and the engine is {settings.engine}",
            why="its programs would not be run",
            remedy="give --asperf-engine=llama_tools as well; where single models name that engine,"
            " write `tools` in the configuration file",
        )
    return settings


def _number(key: str, text: Any) -> Any:
    """Read digits as the number they would be in TOML, so that both are checked alike."""
    # Python refuses to convert thousands of digits, and no count needs ten.
    digits = key in _COUNTS and text.isdecimal() and len(text) < 10
    return int(text) if digits else text


def read_marks(node: pytest.Item) -> Marks:
    """Return what a test's markers ask for, each kind from the closest marker.

    A `quant` marker and a `quant_ladder` marker exclude each other: the closer one wins.

    Raises:
        ConfigError: a marker's arguments are not usable; or both of those stand at one place.
    """
    from pytest_asperf import marks

    levels = _closest_levels(node)
    return marks.Marks(
        model=_parsed(node, node.get_closest_marker("model"), marks.parse_model),
        quant=_parsed(node, levels.get("quant"), marks.parse_quant),
        ladder=_parsed(node, levels.get("quant_ladder"), marks.parse_ladder),
        kv_ladder=_parsed(node, node.get_closest_marker("kv_ladder"), marks.parse_kv_ladder),
        hardware=_parsed(node, node.get_closest_marker("hardware"), marks.parse_hardware),
        speculative=_parsed(node, node.get_closest_marker("speculative"), marks.parse_speculative),
    )


def _closest_levels(node: pytest.Item) -> dict[str, pytest.Mark]:
    """Return the closest of the two markers that name levels, by its name."""
    closest: dict[str, pytest.Mark] = {}
    place = None
    for holder, mark in node.iter_markers_with_node():
        if mark.name in {"quant", "quant_ladder"} and (place is None or place is holder):
            place = holder
            closest.setdefault(mark.name, mark)
    if len(closest) > 1:
        from pytest_asperf.errors import ConfigError

        raise ConfigError(
            f"{node.nodeid}: both a quant and a quant_ladder marker",
            why="which levels the test is meant to measure is a guess",
            remedy="keep one of them",
        )
    return closest


def _parsed(node: pytest.Item, mark: pytest.Mark | None, parse: Callable[..., T]) -> T | None:
    if mark is None:
        return None
    return parse(mark.args, mark.kwargs, where=f"{node.nodeid}: @pytest.mark.{mark.name}")
