"""The completions that a shell is offered behind a command, in the folder of a project."""

from pathlib import Path

import pytest
from click.testing import CliRunner

from pytest_asperf.cli import app
from pytest_asperf.commands.options import WORKLOADS
from pytest_asperf.gate.cells import parse_gated

CONFIG = """
[models.mine]
files = { Q8_0 = "a.gguf", Q4_K_M = "b.gguf" }
[builds.old]
requirements = ["llama-cpp-python==0.3.35"]
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A project's folder, the working one."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "asperf.toml").write_text(CONFIG)
    return tmp_path


def offered(*words: str) -> list[str]:
    """Return the completions of the last word."""
    asked = {"COMP_WORDS": " ".join(("asperf", *words)), "COMP_CWORD": str(len(words))}
    asked["_ASPERF_COMPLETE"] = "bash_complete"
    lines = CliRunner().invoke(app, prog_name="asperf", env=asked).output.splitlines()
    return [line.partition(",")[2] for line in lines if line]


@pytest.mark.parametrize(
    ("words", "some"),
    [
        (("gate", ""), {"current", "old"}),
        (("bisect", "old", "c"), {"current"}),
        (("gate", "--model", "m"), {"mine"}),
        (("models", "build", "mine:"), {"mine:Q8_0", "mine:Q4_K_M"}),
        (("predict", "--model", "asperf-draft:q"), set()),
        (("predict", "--draft", "asperf-draft:Q8"), {"asperf-draft:Q8_0"}),
        (("calibrate", "--workload", "tt"), {"ttft512"}),
        (("gate", "--workload", "ppl,log"), {"ppl,logits", "ppl,logits@d1024"}),
        (("gate", "--set", "nic"), {"nice="}),
    ],
)
def test_names_are_offered(folder: Path, words: tuple[str, ...], some: set[str]) -> None:
    """The folder's models and builds, and workloads that begin so."""
    assert folder.exists()
    assert set(offered(*words)) == some


def test_a_refused_configuration_offers_nothing(folder: Path) -> None:
    """The command itself reports the fault."""
    (folder / "asperf.toml").write_text("chunks = 'many'")
    assert offered("gate", "") == []
    assert "ttft512" in offered("gate", "--workload", "")


def test_the_workloads_offered_are_workloads() -> None:
    """A gate accepts each of them."""
    assert all(parse_gated(name, where="completion") for name in WORKLOADS)
