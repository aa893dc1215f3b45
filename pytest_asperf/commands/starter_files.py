"""The configuration and the tests that `asperf init` writes."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Final

from pytest_asperf.config.settings import DECLARED, default_text, session_option
from pytest_asperf.errors import printable

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from pytest_asperf.commands.given_models import GivenModel

_SHIPPED: Final = "asperf-target"
_BARE_KEY: Final = re.compile(r"[A-Za-z0-9_-]+")
_HEAD: Final = """\
# Models and settings of pytest-asperf, written by `asperf init` on {machine}.
# The documentation's page "Configuration" has every key, "Your own models" those of a model.

{settings}
"""
#: The settings that most projects change; the others are in the documentation.
_OFFERED: Final = ("chunks", "tolerance", "inconclusive", "max_seconds")
_WIDTH: Final = 26
_SHIPPED_MODEL: Final = """
# A model of your own, see `asperf init --help`:
# [models.mine]
# gguf = "models/mine-f16.gguf"
# corpus = "corpora/wiki.test.txt"
"""
_TESTS: Final = '''\
"""First tests of pytest-asperf, written by `asperf init`: change them, and add your own.

pytest {file}
pytest {file} {candidate}={package}==VERSION    # gates an upgrade
"""

import pytest

from pytest_asperf import assert_no_regression
'''
_SPEED: Final = """
@pytest.mark.model({address})
def test_{name}_speed(throughput):
    # Write the speed that you need; the table at the end of a run has the one measured.
    assert throughput("tg128") >= "1 tok/s"
"""
_LEVELS: Final = """
@pytest.mark.model({address})
@pytest.mark.quant_ladder({level}, baseline={baseline})
def test_{name}_quants(perplexity):
    assert perplexity.delta < "1%"
"""
_GATE: Final = """
def test_upgrade(gate):  # skipped until {candidate} names a build
    assert_no_regression(gate("tg128", "pp512", "ppl"), tolerance="5%")
"""
_PAIR: Final = """
# {draft} splits text as {target} does, so it can draft for it. Does that pay?
# @pytest.mark.speculative(draft={draft_address}, target={target_address})
# def test_speculation(speculation):
#     assert speculation.gain > 0
"""


def configuration(
    models: Sequence[GivenModel],
    pair: tuple[GivenModel, GivenModel] | None,
    machine: str,
) -> str:
    """The text of asperf.toml."""
    fitting = [model for model in models if model.files[0].fits]
    default = next((model.address(model.files[0]) for model in [*fitting, *models]), _SHIPPED)
    lines = [_assigned("default_model", quoted(default))]
    lines += [f"# {_assigned(key, _default(key))}" for key in _OFFERED]
    head = _HEAD.format(machine=printable(machine, 200), settings="\n".join(lines))
    tables = [_table(model) for model in models] or [_SHIPPED_MODEL]
    return "".join([head, *tables, *([_roles(*pair)] if pair else [])])


def _assigned(key: str, value: str) -> str:
    """A setting as a configuration file has it, with what it does."""
    return f"{f'{key} = {value}':{_WIDTH}}  # {DECLARED[key].help}"


def _default(key: str) -> str:
    text = default_text(key)
    return text if text.isdecimal() else quoted(text)


def first_tests(
    models: Sequence[GivenModel],
    pair: tuple[GivenModel, GivenModel] | None,
    file: str,
) -> str:
    """The text of a file of tests."""
    parts = list(_tests_of(models) if models else _shipped_tests())
    package = "mlx-lm" if models and models[0].files[0].engine == "mlx" else "llama-cpp-python"
    option = session_option("candidate")
    head = _TESTS.format(file=file, package=package, candidate=option)
    body = "\n".join([head, *parts, _GATE.format(candidate=option)])
    return body + (f"\n{_commented_pair(*pair)}" if pair else "")


def quoted(text: str) -> str:
    """A text as TOML and Python both read it."""
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")


def _table(model: GivenModel) -> str:
    lines = ["", f"[models.{_key(model.name)}]"]
    for file in model.files:
        level = file.level or "no known level"
        lines.append(f"# {level}, {file.title}: {file.need}")
    if model.files[0].engine == "mlx":
        lines.append('engine = "mlx"')
    lines.append(_source(model))
    lines.append('# corpus = "corpora/wiki.test.txt"    # your own text for PPL and KLD')
    if model.files[0].engine != "mlx":
        lines.append("# settings = { threads = 1 }          # and n_gpu_layers, flash_attn, type_k")
    return "\n".join([*lines, ""])


def _source(model: GivenModel) -> str:
    if not model.is_source:
        files = (f"{_key(str(file.level))} = {quoted(file.path)}" for file in model.files)
        return f"files = {{ {', '.join(files)} }}"
    (file,) = model.files
    return f"{'hf' if file.engine == 'mlx' else 'gguf'} = {quoted(file.path)}"


def _roles(draft: GivenModel, target: GivenModel) -> str:
    times = target.files[0].weights_bytes / draft.files[0].weights_bytes
    return f"""
# These two split text alike, and one is {times:.1f} times as large: a pair for speculation.
# [roles]
# draft = {quoted(draft.address(draft.files[0]))}
# target = {quoted(target.address(target.files[0]))}
"""


def _tests_of(models: Sequence[GivenModel]) -> Iterator[str]:
    used: set[str] = set()
    for model in models:
        file, name = model.files[0], _identifier(model.name, used)
        skip = "" if file.fits else f"\n@pytest.mark.skip(reason={quoted(file.need)})"
        yield skip + _SPEED.format(address=quoted(model.address(file)), name=name)
        if model.is_source and file.level is not None:
            level = "8bit" if file.engine == "mlx" else "Q8_0"
            yield skip + _levels(model.name, name, level, file.level)


def _shipped_tests() -> Iterator[str]:
    yield _SPEED.format(address=quoted(f"{_SHIPPED}:Q8_0"), name="target")
    yield _levels(_SHIPPED, "target", "Q8_0", "F16")


def _levels(address: str, name: str, level: str, baseline: str) -> str:
    return _LEVELS.format(
        address=quoted(address), name=name, level=quoted(level), baseline=quoted(baseline)
    )


def _commented_pair(draft: GivenModel, target: GivenModel) -> str:
    return _PAIR.format(
        draft=draft.name,
        target=target.name,
        draft_address=quoted(draft.address(draft.files[0])),
        target_address=quoted(target.address(target.files[0])),
    )


def _identifier(name: str, used: set[str]) -> str:
    word = re.sub(r"\W", "_", name, flags=re.ASCII).lower()
    while word in used:
        word += "_"
    used.add(word)
    return word


def _key(name: str) -> str:
    return name if _BARE_KEY.fullmatch(name) else quoted(name)
