"""Two programs of llama.cpp with a KV handoff, against one, on the shipped target.

One program reads the prompt and writes its cache, the other reads the cache and generates. Alone it
reads the prompt token by token, as on a unit that has no batches, or in batches. Whole processes
are timed, except for the KV handoff.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from pathlib import Path

from installed_tools import tools_folder
from models import level_files, shipped_target

_COMMON = [
    *("{tools}/llama-completion", "-m", "{model}", "-f", "{prompt_file}", "-no-cnv", "-t", "1"),
    *("--temp", "0", "--ignore-eos", "--no-display-prompt", "-c", "8192"),
]
_ALL = ["-n", "{n_tokens}"]
_CACHE = ["--prompt-cache", "{handoff}"]
_STEPS = ["-b", "1", "-ub", "1"]
_SPLIT = [["-n", "1", *_CACHE], [*_ALL, *_CACHE, *_STEPS]]
#: By model: its clock, and each program's further arguments.
_MODELS = {
    "split": ("wall", _SPLIT),
    "by_token": ("wall", [[*_ALL, *_STEPS]]),
    "by_batch": ("wall", [_ALL]),
    "resident": ("program", _SPLIT),
}
_TESTS = """
import pytest
from pytest_asperf import assert_lossless

def test_crossover(latency):
    assert latency.crossover("split", "by_token", over="ttft16..ttft512") <= 512

def test_no_crossover(latency):
    assert latency.crossover("split", "by_batch", over="ttft16..ttft512") > 512

@pytest.mark.model("split")
def test_output(model):
    assert_lossless(model, than="by_token")

@pytest.mark.model("resident")
def test_handoff(latency):
    for workload in ("ttft128", "ttft410", "ttft1024"):
        time = latency(workload)
        print(f"{workload}: handoff {time.handoff.estimate}, TTFT {time.estimate}")
"""


def main() -> int:
    """Measure in a project of its own."""
    model = level_files(shipped_target(), ("F16",))["F16"]
    lines = [f"tools = {json.dumps(str(tools_folder()))}"]
    for name, (clock, programs) in _MODELS.items():
        lines += [f"[models.{name}]", f'clock = "{clock}"']
        lines.append(f"gguf = {json.dumps(str(model))}")
        for given in programs:
            lines.append(f"[[models.{name}.phases]]")
            lines.append(f"run = {json.dumps([*_COMMON, *given])}")
            lines.append('reads = "llama.cpp"')
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "asperf.toml").write_text("\n".join(lines))
        (Path(folder) / "test_pipelines.py").write_text(_TESTS)
        options = ("-s", "-v", "-p", "no:randomly", "--asperf-seed=1", "--asperf-max-seconds=90")
        command = [sys.executable, "-m", "pytest", *options, "--rootdir", folder]
        return subprocess.run(command, cwd=folder, check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
