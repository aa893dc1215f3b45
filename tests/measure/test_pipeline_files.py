"""The files of a pipeline: its description, and its runs' remains."""

import json
import os
import sys
from pathlib import Path

from pytest_asperf.config.pipeline import Phase, Pipeline
from pytest_asperf.config.spec import ModelRef, ModelSpec
from pytest_asperf.engine_process import EngineBuild
from pytest_asperf.modelfiles.locate import ModelLocator


def test_what_a_killed_process_left_is_removed(tmp_path: Path) -> None:
    """The folder of a process that is gone goes too; one that runs keeps its own."""
    pipeline = Pipeline((Phase(("program", "{model}")),), tmp_path)
    model = tmp_path / "model.gguf"
    model.write_text("weights")
    ref = ModelRef(ModelSpec("it", gguf=model, pipeline=pipeline))
    runs = tmp_path / "cache" / "pipelines"
    gone, kept = runs / f"{2**22 + 1}-a", runs / f"{os.getpid()}-b"
    for folder in (gone, kept):
        folder.mkdir(parents=True)
    build = EngineBuild("command", Path(sys.executable))
    located = ModelLocator(build, cache=tmp_path / "cache", call_timeout_s=1).locate(ref)
    assert (gone.exists(), kept.exists()) == (False, True)
    assert json.loads(located.path.read_text())["model"] == str(model)
    model.write_text("other weights")
    assert (
        located.sha256
        != ModelLocator(build, cache=tmp_path / "cache", call_timeout_s=1).locate(ref).sha256
    )
