"""`asperf bisect` over commits that git has and CMake builds, measured by llama.cpp's binaries.

The checkout is tiny, and the measurement is real: each of its programs is llama.cpp's own of that
name, started with a library of the checkout between libllama and ggml. llama-bench's own clock
measures a commit's effect on each graph in that library.
"""

import math
import random
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner

from pytest_asperf.cli import app
from pytest_asperf.store import open_store
from tests.store.documents import gated, night

CMAKE = """
cmake_minimum_required(VERSION 3.14)
project(tiny C)
add_library(between SHARED between.c)
target_link_libraries(between ${{CMAKE_DL_LIBS}})
foreach(name llama-bench llama-perplexity llama-quantize llama-server)
    add_executable(${{name}} start.c)
    add_dependencies(${{name}} between)
    target_compile_definitions(${{name}} PRIVATE
        PROGRAM="{tools}/${{name}}" BETWEEN="$<TARGET_FILE:between>")
endforeach()
"""
START = """
#include <stdlib.h>
#include <unistd.h>
int main(int argc, char ** argv) {
    setenv("LD_PRELOAD", BETWEEN, 1);
    return execv(PROGRAM, argv);
}
"""
#: Each graph is slower by a share of its own time, like a kernel that does more work.
BETWEEN = """
#define _GNU_SOURCE
#include <dlfcn.h>
#include <time.h>
static double now(void) {{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec + 1e-9 * t.tv_nsec;
}}
int ggml_backend_sched_graph_compute_async(void * scheduler, void * graph) {{
    int (*real)(void *, void *) = dlsym(RTLD_NEXT, __func__);
    double began = now();
    int status = real(scheduler, graph);
    double end = began + (1 + {share}) * (now() - began);
    while (now() < end) {{ }}
    return status;
}}
"""


class Checkout:
    """A git checkout of programs, with a commit for each share by which steps are slower."""

    def __init__(self, folder: Path, tools: Path) -> None:
        self.folder = folder
        self.hashes: list[str] = []
        folder.mkdir()
        self.git("init", "-q", "-b", "master")
        (folder / "CMakeLists.txt").write_text(CMAKE.format(tools=tools))
        (folder / "start.c").write_text(START)

    def git(self, *words: str) -> str:
        """Run git in it."""
        who = ["-c", "user.name=A", "-c", "user.email=a@example.org"]
        command = ["git", "-C", str(self.folder), *who, *words]
        return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()

    def commit(self, subject: str, *, share: str) -> None:
        """Commit a library that slows each step by a share."""
        (self.folder / "between.c").write_text(BETWEEN.format(share=share))
        self.git("add", "-A")
        self.git("commit", "-q", "--allow-empty", "-m", subject)
        self.hashes.append(self.git("rev-parse", "HEAD"))


def _nights(address: str, ends: list[str]) -> str:
    """Store runs with a step between two builds, by their names; return their series."""
    draw = random.Random(1)  # noqa: S311
    with open_store(address) as store:
        for number in range(24):
            build = ends[number >= 20]
            ratio = math.exp(draw.gauss(0, 0.005)) * (2 if number >= 20 else 1)
            document = night(gated(ratio, candidate=build[-40:]), number=number)
            compared = document["rows"][0]["compared"]
            compared["timed"] = "tg256"
            for ran in compared["ran"]:
                ran["spec"] = "asperf-draft:F16"
            notes = {"job": "j", "facts": {}, "build": build}
            store.record({**document, "nightly": notes}, kind="nightly", is_live=False)
        return next(one.id for one in store.series() if one.key.unit == "log ratio")


@pytest.fixture
def checkout(tmp_path: Path, tools: Path, monkeypatch: pytest.MonkeyPatch) -> Checkout:
    """A checkout without commits, next to which the command runs."""
    monkeypatch.chdir(tmp_path)
    # Few of the pairs that a size is quoted from; the bounds here are wide.
    monkeypatch.setattr("pytest_asperf.bisect.run._PAIRS_OF_A_SIZE", 6)
    return Checkout(tmp_path / "tiny", tools)


@pytest.mark.serial
@pytest.mark.usefixtures("draft_gguf")
def test_the_commit_that_made_it_slow_is_named(
    checkout: Checkout, session_cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The fifth of seven commits, one of which does not compile, doubles a graph's cost.

    The question comes from a step in the history, whose runs had the first and the last of them.
    """
    monkeypatch.setenv("ASPERF_CACHE", str(session_cache))
    checkout.commit("Begin", share="0.0")
    for number in range(1, 8):
        share = "no number" if number == 6 else "1.0" if number >= 5 else "0.0"
        checkout.commit(f"Change {number}", share=share)
    ends = [f"./{checkout.folder.name}@{checkout.hashes[i]}" for i in (0, -1)]
    series = _nights("h.db", ends)
    words = ["--store", "h.db", "confirm", series, "--bisect", "--set", "seed=1"]
    done = CliRunner().invoke(app, ["history", *words])
    sys.stdout.write(done.output)
    assert done.exit_code == 0, done.output
    culprit = checkout.hashes[5]
    assert f"culprit: ./tiny@{culprit[:10]} (" in done.stdout
    assert "Change 5)" in done.stdout
    assert f"show {culprit}" in done.stdout
    judged = re.findall(r"^(?:PASS|FAIL) ", done.stdout, re.MULTILINE)
    assert len(judged) <= 3 + 2
    assert re.search(r"^INVALID .*cannot be built", done.stdout, re.MULTILINE)
    effect = re.search(r"effect  \+(\d+)\S* %", done.stdout)
    assert effect is not None
    assert 50 < int(effect[1]) < 130


@pytest.mark.serial
@pytest.mark.usefixtures("draft_gguf")
def test_a_servers_regression_is_found_to_the_commit(
    checkout: Checkout,
    program: Callable[[str], Path],
    session_cache: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Each commit's llama-server is compiled and started, and its users' times are gated."""
    program("llama-server")
    monkeypatch.setenv("ASPERF_CACHE", str(session_cache))
    for number in range(5):
        checkout.commit(f"Change {number}", share="1.0" if number >= 3 else "0.0")
    ends = [f"./{checkout.folder.name}@{checkout.hashes[i]}" for i in (0, -1)]
    words = ["--engine", "llama_server", "--model", "asperf-target:F16", "--workload", "ttft256"]
    done = CliRunner().invoke(
        app, ["bisect", *ends, *words, "--tolerance", "30%", "--set", "seed=1"]
    )
    sys.stdout.write(done.output)
    assert done.exit_code == 0, done.output
    assert f"culprit: ./tiny@{checkout.hashes[3][:10]} (" in done.stdout
