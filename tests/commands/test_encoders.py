"""An encoder is rejected by each command, and by pytest, with the reason and before it is run."""

import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.commands.conftest import Ended
from tests.modelfiles.gguf_files import write_gguf

_COMMANDS = {
    "predict": ("predict", "--hardware=m4max-40", "--model={}"),
    "draft": ("predict", "--hardware=m4max-40", "--model=asperf-target:Q8_0", "--draft={}"),
    "init": ("init", "{}"),
    "gate": ("gate", "current", "current", "--model={}", "--workload=ppl"),
}


@pytest.mark.parametrize("name", list(_COMMANDS))
@pytest.mark.parametrize("kind", ["bert", "folder"])
def test_a_command_refuses_it(
    run_asperf: Callable[..., Ended],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    name: str,
    kind: str,
) -> None:
    """Exit code 2, one message with encoder and next token, and nothing written."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("ASPERF_CACHE", str(tmp_path / "cache"))
    if kind == "bert":
        model = str(write_gguf(tmp_path / "bert.gguf", arch="bert"))
    else:
        model = "./embedder"
        (tmp_path / model).mkdir()
        (tmp_path / model / "config.json").write_text(json.dumps({"model_type": "bert"}))
    words = [word.format(model) for word in _COMMANDS[name]]
    engine = ["--engine=mlx"] if (name, kind) == ("gate", "folder") else []
    done = run_asperf(*words, *engine)
    assert done.returncode not in {0, 1}, done.stdout
    assert "an encoder, which does not continue a text" in done.stdout + done.stderr
    assert "about the next token" in done.stdout + done.stderr
    assert "Traceback" not in done.stderr
    assert not (tmp_path / "asperf.toml").exists()


def test_a_gate_lists_the_checks_that_have_a_meaning_for_it(
    run_asperf: Callable[..., Ended], tmp_path: Path
) -> None:
    """Vectors and memory, and the reason for nothing else."""
    model = write_gguf(tmp_path / "bert.gguf", arch="bert")
    done = run_asperf("gate", "current", "current", f"--model={model}", "--list")
    assert "every other check of bert.gguf: it is an encoder" in done.stdout
    assert [line.split()[0] for line in done.stdout.splitlines()[-2:]] == ["embeddings", "memory"]


def test_the_list_of_models_has_the_reason(
    run_asperf: Callable[..., Ended], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An encoder, an encoder-decoder and a folder of one are no sources that are fine."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("ASPERF_CACHE", str(tmp_path / "cache"))
    for arch in ("bert", "t5"):
        write_gguf(tmp_path / f"{arch}.gguf", arch=arch)
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder/config.json").write_text(json.dumps({"model_type": "bert"}))
    (tmp_path / "piped").mkdir()
    os.mkfifo(tmp_path / "piped/config.json")
    (tmp_path / "asperf.toml").write_text(
        '[models.a]\ngguf = "bert.gguf"\n[models.b]\nfiles = { F16 = "t5.gguf" }\n'
        '[models.c]\nhf = "folder"\n[models.d]\nhf = "piped"\n'
    )
    shown = " ".join(run_asperf("models").stdout.split())
    assert "bert.gguf is an encoder, which does not continue a text" in shown
    assert "t5.gguf is an encoder-decoder, which does not continue a text" in shown
    assert "config.json is of an encoder, which does not continue a text" in shown
    assert "piped/config.json cannot be read: it is a pipe or device" in shown
    listed = json.loads(run_asperf("models", "list", "--report=json:-").stdout)["models"]
    problems = [source["problem"] for model in listed[:3] for source in model["sources"]]
    assert all("does not continue a text" in problem for problem in problems), problems
