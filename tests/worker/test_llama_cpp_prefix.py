"""A cache filled from an earlier load's saved cells equals the one of computing the text."""

import json
import subprocess
import sys
from pathlib import Path

from pytest_asperf.config.engine_settings import EngineSettings
from pytest_asperf.engine_process import EngineBuild, Worker
from tests.conftest import Draft

BUILD = EngineBuild("llama_cpp", Path(sys.executable))
#: In a process of its own, as a worker is: counts the tokens that a run at a depth decodes.
_COUNT = """
import json, sys
from pytest_asperf.worker.llama_cpp_engine import LlamaCppEngine, LlamaCppModel
decoded, decode_all = [], LlamaCppModel._decode_all
def counted(self, tokens, *arguments):
    decoded.append(len(tokens))
    return decode_all(self, tokens, *arguments)
LlamaCppModel._decode_all = counted
engine, tokens = LlamaCppEngine(), [(7 * n) % 250 + 1 for n in range(320)]
for settings, end in (({}, 264), ({}, 264), ({}, 272), ({"threads": 1}, 264)):
    model = engine.load(sys.argv[1], settings)
    model.generate(tokens[:end], end - 8, 320)
    model.close()
print(json.dumps(decoded))
"""
#: Prompts before speculation, with the logits of the token behind.
_COUNT_PROMPTS = """
import json, sys
from pytest_asperf.worker.llama_cpp_engine import LlamaCppEngine
from pytest_asperf.worker.llama_cpp_speculation import LlamaCppStepper
decoded, peaks, decode = [], set(), LlamaCppStepper._decode
def counted(self, tokens, n_outputs):
    decoded.append(len(tokens))
    return decode(self, tokens, n_outputs)
engine, tokens = LlamaCppEngine(), [(7 * n) % 250 + 1 for n in range(320)]
for prompt, fresh in ((200, False), (200, False), (199, False), (200, False), (200, True)):
    model = engine.load(sys.argv[1], {})
    stepper = model.stepper(320, 5, "auto")
    LlamaCppStepper._decode = counted
    stepper.begin(tokens[:prompt], fresh=fresh)
    LlamaCppStepper._decode = decode
    if prompt == 200:
        peaks.add(stepper.decode([7], 1)[0].tobytes())
    stepper.close()
    model.close()
print(json.dumps([decoded, len(peaks)]))
"""


def test_a_second_load_computes_only_what_the_first_did_not(draft_gguf: Path) -> None:
    """The same text costs nothing, a longer one its end, and other settings all of it."""
    command = [sys.executable, "-c", _COUNT, str(draft_gguf)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "[256, 8, 8, 8, 8, 256, 8]"


def test_a_later_process_computes_only_what_an_earlier_one_did_not(
    draft_gguf: Path, tmp_path: Path
) -> None:
    """Through a shared folder, the same text costs it nothing, and other settings all of it."""
    shared = _COUNT.replace("for settings", "engine.share(sys.argv[2])\nfor settings", 1)
    command = [sys.executable, "-c", shared, str(draft_gguf), str(tmp_path)]
    counts = [
        subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()[-1]
        for _ in range(2)
    ]
    assert counts == ["[256, 8, 8, 8, 8, 256, 8]", "[8, 8, 8, 8, 8]"]


def test_a_prompt_before_speculation_is_computed_once(draft_gguf: Path) -> None:
    """The logits behind it are the same to the last bit; another, or a fresh one, is computed."""
    command = [sys.executable, "-c", _COUNT_PROMPTS, str(draft_gguf)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "[[200, 16, 199, 16, 200], 1]"


def test_a_later_process_takes_the_prompts_of_an_earlier_one(
    draft_gguf: Path, tmp_path: Path
) -> None:
    """Through a shared folder; the logits behind them are the same to the last bit."""
    shared = _COUNT_PROMPTS.replace("for prompt", "engine.share(sys.argv[2])\nfor prompt", 1)
    shared = shared.replace("len(peaks)", "[peak.hex() for peak in peaks]")
    command = [sys.executable, "-c", shared, str(draft_gguf), str(tmp_path)]
    (first, peak), (later, later_peak) = (
        json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
        for _ in range(2)
    )
    assert (first, later) == ([200, 16, 199, 16, 200], [16, 16, 16, 16, 200])
    assert peak == later_peak


def test_logits_are_those_of_a_computed_cache(draft: Draft, tmp_path: Path) -> None:
    """Each cache type is restored, in the same process and in later ones, to the last bit."""
    for settings in (
        EngineSettings(threads=1),
        EngineSettings(threads=1, type_k="q8_0", type_v="q8_0"),
        EngineSettings(threads=1, flash_attn="off"),
    ):
        peaks = []
        for _ in range(2):
            with Worker(BUILD, call_timeout_s=120) as worker:
                worker.share(tmp_path)
                for _ in range(2):
                    worker.load("m", draft("F16"), settings)
                    text = "def area(width, height):\n    return 1\n" * 40
                    run = worker.generate("m", worker.tokenize("m", text)[:300], 292, n_ctx=300)
                    assert run.logits is not None
                    peaks.append(run.logits.peak)
                    worker.unload("m")
        assert len(set(peaks)) == 1, settings
    assert len(list(tmp_path.iterdir())) == 3
