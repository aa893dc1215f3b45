"""Bad input, through pytest, on llama.cpp: an error in its own test, and none in its neighbours."""

import os
import shutil
import subprocess
import xml.etree.ElementTree as ET
from collections.abc import Iterator
from pathlib import Path

import pytest

from pytest_asperf.modelfiles.hub_cache import shipped_models
from tests.conftest import Draft
from tests.modelfiles.gguf_files import write_gguf
from tests.plugin.bad_input import assert_told, cases_of
from tests.plugin.conftest import Project

CONFIG = """
engine = "llama_cpp"
default_model = "asperf-draft"
repetitions = 1
chunks = 2

[models.short]
gguf = "sound.gguf"
corpus = "short.txt"
settings = { threads = 1 }

[models.absent]
gguf = "sound.gguf"
corpus = "absent.txt"

[models.mixed]
files = { F16 = "sound.gguf", Q8_0 = "other_tokenizer.gguf" }

[models.misnamed]
files = { Q4_K_M = "q8.gguf" }

[models.quantized]
gguf = "q8.gguf"
"""
TESTS = """
import pytest

files = ["missing", "folder", "empty", "truncated", "corrupt", "unknown_arch", "safetensors",
         "encoder"]

@pytest.mark.parametrize(
    "name", [pytest.param(n, marks=pytest.mark.model(f"./{n}.gguf"), id=n) for n in files]
)
def test_file(name, throughput):
    throughput("tg8").estimate

@pytest.mark.model("asperf-draft:F16")
def test_sound(throughput):
    throughput("tg8").estimate

@pytest.mark.quant("Q9_K")
def test_unknown_level(throughput):
    throughput("tg8").estimate

@pytest.mark.quant("IQ1_S")
def test_level_needs_importance(throughput):
    throughput("tg8").estimate

@pytest.mark.model("quantized:Q4_0")
def test_level_of_a_quantised_file(throughput):
    throughput("tg8").estimate

@pytest.mark.model("misnamed:Q4_K_M")
def test_level_of_another_name(throughput):
    throughput("tg8").estimate

@pytest.mark.model("short:Q8_0")
def test_short_corpus(perplexity):
    perplexity.ppl.estimate

@pytest.mark.model("absent:Q8_0")
def test_absent_corpus(perplexity):
    perplexity.ppl.estimate

@pytest.mark.model("asperf-draft:F16")
def test_context(throughput):
    throughput("tg128@d999999").estimate

@pytest.mark.model("asperf-draft:F16")
def test_word(throughput):
    throughput("128tg").estimate

@pytest.mark.model("mixed")
@pytest.mark.quant_ladder("Q8_0")
def test_tokenizers(perplexity):
    perplexity.ppl.estimate

@pytest.mark.hardware("m2ultr")
def test_hardware(throughput):
    pass

@pytest.mark.model("asperf-draft:F16", flash_atn="on")
def test_marker(throughput):
    pass

@pytest.mark.quant("Q8_0")
def test_sound_too(perplexity):
    perplexity.ppl.estimate
"""
#: By test: the phase that it fails in, and its message. A message is its four parts.
TOLD = {
    "test_file[missing]": ("failure", ["missing.gguf: there is no such file"]),
    "test_file[folder]": ("failure", ["folder.gguf is a directory"]),
    "test_file[empty]": ("failure", ["empty.gguf", "empty"]),
    "test_file[truncated]": ("failure", ["truncated.gguf", "truncated"]),
    "test_file[corrupt]": ("failure", ["corrupt.gguf"]),
    "test_file[unknown_arch]": ("failure", ["unknown_arch.gguf", "zzama"]),
    "test_file[safetensors]": ("failure", ["safetensors.gguf", "safetensors"]),
    "test_file[encoder]": ("failure", ["encoder.gguf is an encoder", "architecture is bert"]),
    "test_unknown_level": ("error", ["unknown quantization 'Q9_K'"]),
    "test_level_needs_importance": ("failure", ["IQ1_S", "importance matrix"]),
    "test_level_of_a_quantised_file": ("failure", ["q8.gguf", "Q8_0 already"]),
    "test_level_of_another_name": ("failure", ["q8.gguf is Q8_0", "not Q4_K_M"]),
    "test_short_corpus": ("failure", ["short.txt", "fewer than two chunks of 512"]),
    "test_absent_corpus": ("failure", ["absent.txt", "cannot be read"]),
    "test_context": ("failure", ["tg128@d999999", "1000127 tokens", "asperf-draft:F16"]),
    "test_word": ("failure", ["'128tg' is not a workload"]),
    "test_tokenizers[Q8_0]": (
        "failure",
        ["other_tokenizer.gguf", "sound.gguf are two models: their tokens differ"],
    ),
    "test_hardware": ("error", ["'m2ultr'", "did you mean 'm2ultra'?"]),
    "test_marker": ("error", ["'flash_atn'", "did you mean 'flash_attn'?"]),
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory, draft: Draft, own_lock: str) -> Path:
    """A project with a file of every kind of fault."""
    folder = tmp_path_factory.mktemp("bad")
    sound = draft("F16").read_bytes()
    header = sound[: sound.index(b"blk.0.")]
    (spec,) = (spec for spec in shipped_models() if spec.name == "asperf-draft")
    assert spec.hf_folder is not None
    contents = {
        "sound": sound,
        "q8": draft("Q8_0").read_bytes(),
        "empty": b"",
        "truncated": sound[: len(sound) // 2],
        # The first key's length, behind magic, version and two counts, is beyond the file.
        "corrupt": sound[:24] + (2**40).to_bytes(8, "little") + sound[32:],
        "unknown_arch": header.replace(b"llama", b"zzama") + sound[len(header) :],
        "other_tokenizer": draft("Q8_0").read_bytes().replace(b"return", b"retrun", 1),
        "safetensors": (spec.hf_folder / "model.safetensors").read_bytes(),
    }
    for name, content in contents.items():
        (folder / f"{name}.gguf").write_bytes(content)
    write_gguf(folder / "encoder.gguf", arch="bert")
    (folder / "folder.gguf").mkdir()
    (folder / "short.txt").write_text("def short():\n    pass\n")
    (folder / "conftest.py").write_text(own_lock)
    (folder / "asperf.toml").write_text(CONFIG)
    (folder / "test_bad.py").write_text(TESTS)
    return folder


@pytest.fixture(scope="module")
def told(folder: Path, command: list[str], environment: dict[str, str]) -> dict[str, ET.Element]:
    """One session over all of them: each test's element of the JUnit report."""
    return cases_of(command, folder, environment)


@pytest.mark.parametrize("name", TOLD)
def test_it_is_an_error_of_its_own_test(told: dict[str, ET.Element], name: str) -> None:
    """It has the fault and the remedy, and shows no traceback."""
    assert_told(told[name], *TOLD[name])


@pytest.mark.parametrize("name", ["test_sound", "test_sound_too"])
def test_its_neighbours_are_measured(told: dict[str, ET.Element], name: str) -> None:
    """Sound tests of the same session pass."""
    assert len(told[name]) == 0


NEEDS_CACHE = """
@pytest.mark.model("asperf-draft:F16")
def test_made(throughput):
    throughput("tg8").estimate

@pytest.mark.model("./sound.gguf", threads=1)
def test_given(throughput):
    throughput("tg8").estimate
"""


def _needs_cache(live: Project, draft: Draft, cache: Path, told: str) -> None:
    shutil.copy(draft("F16"), live.path / "sound.gguf")
    live.test(NEEDS_CACHE)
    live.config(engine="llama_cpp", repetitions=1, cache=str(cache), call_timeout_s=120)
    result = live.run()
    result.assert_outcomes(failed=1, passed=1)
    result.stdout.fnmatch_lines([told, "  why it matters: *", "  what to do: *ASPERF_CACHE*"])


def test_a_file_in_place_of_the_cache(live: Project, draft: Draft) -> None:
    """If the cache cannot be a folder, only tests that have to make a file fail."""
    _needs_cache(live, draft, live.path / "corpus.txt", "the cache folder * cannot be used: *")


@pytest.mark.skipif(not Path("/proc/self").exists(), reason="needs a folder nobody can write to")
def test_a_cache_that_cannot_be_written(live: Project, draft: Draft) -> None:
    """The same if not even root may write."""
    _needs_cache(live, draft, Path("/proc/self/cache"), "the cache folder * cannot be used: *")


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_a_read_only_cache(live: Project, draft: Draft) -> None:
    """A folder without write permission."""
    cache = live.path / "cache"
    cache.mkdir(mode=0o555)
    _needs_cache(live, draft, cache, "the cache folder * cannot be used: *")


@pytest.fixture
def full_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system with room for no model."""
    folder = tmp_path / "small"
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=1m", "none", str(folder)]
    if (
        shutil.which("mount") is None
        or subprocess.run(mount, check=False, capture_output=True).returncode
    ):
        pytest.skip("only root can mount a small file system")
    yield folder
    subprocess.run(["umount", folder], check=True)  # noqa: S607  # as mount


def test_a_full_disk(live: Project, draft: Draft, full_disk: Path) -> None:
    """A text that does not fit is reported, and leaves no half file."""
    _needs_cache(live, draft, full_disk, "the disk of the cache folder * is full")
    assert not [path for path in full_disk.rglob("*") if path.suffix in {".gguf", ".part"}]
