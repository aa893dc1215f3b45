"""`asperf init`: its files parse, are collected and run, for any names of files."""

import ast
import re
import struct
import subprocess
import tomllib
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from hypothesis import given
from hypothesis import strategies as st

from pytest_asperf.analysis.capacity import MemoryCapacity
from pytest_asperf.cli import app
from pytest_asperf.commands.starter_files import (
    GivenFile,
    configuration,
    first_tests,
    named,
    pair_of,
    quoted,
    read_given,
)
from pytest_asperf.config.catalogue import load_catalogue
from pytest_asperf.errors import AsperfError
from pytest_asperf.modelfiles.hub_cache import shipped_models
from tests.conftest import Draft
from tests.modelfiles.gguf_files import write_gguf, write_parts

GIB = 2**30
MEMORY = MemoryCapacity(16 * GIB, is_shared=True, basis="")


@pytest.fixture
def init(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Result]:
    """The command, in an empty folder."""
    monkeypatch.chdir(tmp_path)
    return lambda *words: CliRunner().invoke(app, ["init", *words])


@pytest.fixture
def run_pytest(
    tmp_path: Path, command: list[str], environment: dict[str, str], own_lock: str
) -> Callable[..., str]:
    """Runs pytest on the written tests, and gives its output."""
    (tmp_path / "conftest.py").write_text(own_lock)

    def run(*options: str) -> str:
        words = [*command, *options, str(tmp_path / "test_asperf.py")]
        done = subprocess.run(
            words, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=300,
            check=False,
        )  # fmt: skip
        return done.stdout + done.stderr

    return run


def file(path: str, level: str | None, weights_gib: float = 1, vocabulary: str = "v") -> GivenFile:
    """Return a GGUF file of a size."""
    return GivenFile(
        path, "llama_cpp", level, "m", int(weights_gib * GIB), 10**8, 4096, vocabulary, MEMORY
    )


def uncommented(text: str, first: str) -> str:
    """Return a text in which the commented lines from `first` to a blank one are selected."""
    head, found, tail = text.partition(f"# {first}")
    block, *rest = f"# {first}{tail}".split("\n\n")
    assert found
    return head + re.sub(r"(?m)^# ", "", block) + "\n" + "\n\n".join(rest)


def test_without_a_file_both_are_about_the_shipped_model(
    init: Callable[..., Result], tmp_path: Path, run_pytest: Callable[..., str]
) -> None:
    """The configuration is usable, and pytest collects the tests."""
    done = init()
    assert done.exit_code == 0, done.output
    assert done.stdout.splitlines()[-1] == "next: pytest test_asperf.py"
    settings = load_catalogue(tmp_path, shipped_models()).settings
    assert str(settings.default_model) == "asperf-target"
    names = ["test_target_kv_cache", "test_target_quants", "test_upgrade"]
    assert re.findall(r"py::(.+)", run_pytest("--collect-only", "-q")) == names


def test_the_tests_of_a_given_file_pass(
    init: Callable[..., Result], tmp_path: Path, draft: Draft, run_pytest: Callable[..., str]
) -> None:
    """A GGUF file is measured with its written test."""
    done = init(str(draft("Q8_0")))
    assert done.exit_code == 0, done.output
    assert re.search(r"ok +asperf-draft-\S+ +Q8_0: 1\.\d+ MiB of weights.* fits in", done.stdout)
    settings = tmp_path / "asperf.toml"  # with one thread, as others may work on this machine
    settings.write_text(settings.read_text().replace("# settings", "settings"))
    ran = run_pytest("--asperf-repetitions=5", "--asperf-max-cv=1000%")
    assert "1 passed, 1 skipped" in ran, ran


def test_the_names_of_a_hostile_file_are_data(
    init: Callable[..., Result], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its path is found again, and neither file has a key or a statement of its making."""
    monkeypatch.setattr("pytest_asperf.hardware.in_force.memory_of", lambda _: None)
    name = 'x"\n[builds.evil]\n"""\nimport os\x1b]0;\x7f\u202e'
    path = tmp_path / 'a"\n# """ \U0001f600\x7f\\Q4.gguf'
    write_gguf(path, keys={"general.name": name})
    done = init(str(path))
    assert done.exit_code == 0, done.output
    assert "\x1b" not in done.output
    catalogue = load_catalogue(tmp_path, ())
    assert [spec.gguf for spec in catalogue.models] == [path]
    assert not catalogue.builds
    written = (tmp_path / "test_asperf.py").read_text(encoding="utf-8")
    kinds = {type(node) for node in ast.parse(written).body}
    assert kinds == {ast.Expr, ast.Import, ast.ImportFrom, ast.FunctionDef}


@given(st.text(st.characters(exclude_categories=["Cs"])))
def test_a_quoted_text_is_read_back(text: str) -> None:
    """TOML and Python read one text from the written file."""
    assert tomllib.loads(f"key = {quoted(text)}") == {"key": text}
    assert ast.literal_eval(quoted(text)) == text


@pytest.mark.parametrize("name", ["asperf.toml", "test_asperf.py"])
def test_nothing_is_overwritten(init: Callable[..., Result], tmp_path: Path, name: str) -> None:
    """The error names the file that is there, and the other one is not written."""
    (tmp_path / name).write_text("mine")
    done = init()
    assert done.exit_code == 3, done.output
    assert f"{tmp_path / name} exists already, and is not overwritten" in done.output
    assert {path.name: path.read_text() for path in tmp_path.iterdir()} == {name: "mine"}


def test_settings_elsewhere_are_not_contradicted(
    init: Callable[..., Result], tmp_path: Path
) -> None:
    """A second file of settings would make every later run an error."""
    (tmp_path / "pyproject.toml").write_text("[tool.asperf]\nchunks = 8\n")
    done = init()
    assert "pyproject.toml has settings in [tool.asperf]" in done.output
    assert not (tmp_path / "asperf.toml").exists()


def test_levels_of_one_model_are_one_table(tmp_path: Path) -> None:
    """A name has no quantization; files that differ in more than that are models of their own."""
    files = [
        file("q/Qwen 8B-Q4_K_M.gguf", "Q4_K_M"),
        file("q/Qwen 8B-Q8_0.gguf", "Q8_0"),
        file("other/Qwen 8B-Q8_0.gguf", "Q8_0"),
        file("m/Qwen 8B-Q6_K.gguf", "Q6_K", vocabulary="w"),
        file("asperf-target.gguf", "F16"),
        file("q/unknown.gguf.gguf", None),
    ]
    models = named(files, ["asperf-target"])
    tests = first_tests(models, None, "test_asperf.py")
    ast.parse(tests)
    assert '@pytest.mark.quant_ladder("Q4_K_M", "Q8_0", baseline="Q8_0", chunks=8)' in tests
    (tmp_path / "asperf.toml").write_text(configuration(models, None, "here"))
    found = load_catalogue(tmp_path, shipped_models()).models[len(shipped_models()) :]
    assert {spec.name: [level for level, _ in spec.files] for spec in found} == {
        "Qwen-8B": ["Q4_K_M", "Q8_0"],
        "Qwen-8B-2": ["Q8_0"],
        "Qwen-8B-3": ["Q6_K"],
        "asperf-target-2": [],
        "unknown": [],
    }


def test_a_pair_that_splits_text_alike_is_suggested() -> None:
    """Once uncommented, slots and a test name a small draft and a large target."""
    files = [
        file("a-8b-Q8_0.gguf", "Q8_0", 8),
        file("a-2b-Q8_0.gguf", "Q8_0", 2),
        file("a-0.5b-F16.gguf", "F16", 1),
        file("b-0.1b-Q8_0.gguf", "Q8_0", 0.1, "other"),
    ]
    models = named(files, [])
    pair = pair_of(models)
    written = configuration(models, pair, "here")
    slots = tomllib.loads(uncommented(written, "[slots]"))["slots"]
    assert slots == {"draft": "a-0.5b", "target": "a-8b:Q8_0"}
    code = first_tests(models, pair, "t.py")
    last = ast.parse(uncommented(code, "@pytest.mark.spec")).body[-1]
    assert isinstance(last, ast.FunctionDef)
    assert ast.unparse(last.decorator_list[0]).endswith("(draft='a-0.5b', target='a-8b:Q8_0')")
    assert pair_of(named([files[0], files[3]], [])) is None


def test_a_model_that_does_not_fit_is_skipped() -> None:
    """Its test names the model that is too large; the default model is one that fits."""
    models = named([file("large.gguf", "Q8_0", 14), file("small.gguf", "Q8_0", 1)], [])
    code = first_tests(models, None, "t.py")
    large, small = (node for node in ast.parse(code).body[3:5])
    assert "weights above 60 % of 16 GiB" in ast.unparse(large)
    assert "skip" not in ast.unparse(small)
    written = tomllib.loads(configuration(models, None, "here"))
    assert written["default_model"] == "small:Q8_0"


def test_the_parts_of_a_model_are_one_model(
    init: Callable[..., Result], tmp_path: Path, draft_gguf: Path
) -> None:
    """`asperf init *.gguf` uses the first part for all; without it, a later one is rejected."""
    parts = write_parts(draft_gguf, tmp_path, "draft-Q8_0", n_tensors=8)
    done = init(*(part.name for part in parts))
    assert done.exit_code == 0
    assert "left out" not in done.output
    written = tomllib.loads((tmp_path / "asperf.toml").read_text(encoding="utf-8"))
    (model,) = written["models"].values()
    assert parts[0].name in str(model)
    assert parts[1].name not in str(model)
    with pytest.raises(AsperfError, match="by its name not the first"):
        read_given(parts[1:], tmp_path, MEMORY)


def test_files_that_are_no_models_are_left_out(
    init: Callable[..., Result], tmp_path: Path, draft_gguf: Path
) -> None:
    """`asperf init *.gguf` uses the model of a folder, and names every other file of it."""
    write_gguf(tmp_path / "mmproj.gguf", arch="clip", keys={"general.type": "mmproj"})
    write_gguf(tmp_path / "flux.gguf", arch="flux")
    write_gguf(tmp_path / "lora.gguf", tensors={"blk.0.attn_q.weight.lora_a": (4, 32)})
    model = draft_gguf.read_bytes()
    (tmp_path / "model.gguf").write_bytes(model)
    (tmp_path / "cut.gguf").write_bytes(model[: len(model) // 2])
    (tmp_path / "imatrix.gguf").write_bytes(struct.pack("<ii", 1, 19) + b"blk.0.attn_q.weight")
    names = "mmproj", "flux", "lora", "model", "cut", "imatrix"
    done = init(*(f"{name}.gguf" for name in names))
    assert done.exit_code == 0
    said = " ".join(done.output.split())
    for reason in ("unknown architecture 'flux'", "a LoRA adapter", "truncated", "importance"):
        assert reason in said
    with pytest.raises(AsperfError, match="there is no such file"):
        read_given([tmp_path / "model.gguf", tmp_path / "none.gguf"], tmp_path, MEMORY)
    written = tomllib.loads((tmp_path / "asperf.toml").read_text(encoding="utf-8"))
    assert list(written["models"]) == ["model"]
    assert "multimodal projector" in " ".join(done.output.split())
    with pytest.raises(AsperfError, match="multimodal projector"):
        read_given([tmp_path / "mmproj.gguf"], tmp_path, MEMORY)
