"""Models whose engine is a command line, as a configuration file declares them."""

from pathlib import Path

import pytest

from pytest_asperf.config.catalogue import load_catalogue
from pytest_asperf.config.pipeline import READERS, Pipeline
from pytest_asperf.errors import ConfigError

_RUN = 'run = ["program", "{prompt}", "{n_tokens}"]'


def parsed(folder: Path, text: str) -> Pipeline:
    """The pipeline of a model `it`."""
    (folder / "asperf.toml").write_text(f"[models.it]\n{text}\n")
    ref = load_catalogue(folder, ()).find("it", where="test")
    assert ref.spec.engine == "command"
    assert ref.spec.pipeline is not None
    return ref.spec.pipeline


def test_phases_make_a_model_a_command(tmp_path: Path) -> None:
    """It names no engine, and needs no file; the folder of the project is where it runs."""
    pipeline = parsed(tmp_path, f'phases = [{{ {_RUN}, reads = "mlx_lm" }}]')
    (phase,) = pipeline.phases
    assert phase.reader == READERS["mlx_lm"]
    assert (pipeline.folder, pipeline.clock) == (tmp_path, "program")
    assert not pipeline.takes_model


def test_readers_of_one_s_own(tmp_path: Path) -> None:
    """Patterns with named groups, keys of JSON lines, and required output."""
    pipeline = parsed(
        tmp_path,
        f"""
[[models.it.phases]]
{_RUN}
json = {{ prompt_ms = "timings.prompt_ms" }}
proof = {{ device = "using (.*)" }}
[[models.it.phases]]
{_RUN}
patterns = ['took (?P<prompt_s>[0-9.]+) s', '(?P<generated_tokens>[0-9]+) tokens']
counts_first = true
stdin = true
""",
    )
    first, second = pipeline.phases
    assert first.reader
    assert second.reader
    assert first.reader.keys == (("prompt_ms", "timings.prompt_ms"),)
    assert first.proof == (("device", "using (.*)"),)
    assert len(second.reader.patterns) == 2
    assert (second.reader.counts_first, second.stdin) == (True, True)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("phases = []", "phases takes one or more"),
        ("phases = [3]", r"phases\[1\]: 3 is not usable"),
        ('phases = [{ run = "program {prompt}" }]', "without a shell"),
        (f'phases = [{{ {_RUN}, reads = "mlxlm" }}]', "did you mean 'mlx_lm'"),
        (f'phases = [{{ {_RUN}, raeds = "mlx_lm" }}]', "did you mean 'reads'"),
        (f"phases = [{{ {_RUN} }}]", "give each program `reads`, `patterns` or `json`"),
        (f"phases = [{{ {_RUN}, patterns = ['(']  }}]", r"missing \)"),
        (f"phases = [{{ {_RUN}, patterns = ['(?P<promt_ms>.)'] }}]", "did you mean 'prompt_ms'"),
        (f"phases = [{{ {_RUN}, patterns = ['ms'] }}]", "'no group' is not a quantity"),
        (f'phases = [{{ {_RUN}, reads = "mlx_lm", json = {{}} }}]', "keep reads or json"),
        ('phases = [{ run = ["p", "{promt}"] }]', r"unknown placeholder '\{promt\}'; did you mean"),
        ('phases = [{ run = ["p", "{n_tokens}"] }]', "give the first program the prompt"),
        ('phases = [{ run = ["p", "{prompt}"] }]', r"write \{n_tokens\} for the last program"),
        (
            'phases = [{ run = ["p", "{prompt}", "{n_tokens}", "{handoff}"] }]\nclock = "wall"',
            "in the program that reads that file, too",
        ),
        (f'phases = [{{ {_RUN}, reads = "mlx_lm" }}]\nclock = "sun"', "clock takes one of"),
        ('hf = "x"\ngguf = "y"\nphases = [{ run = ["p"] }]\nclock = "wall"', "give the first"),
        ('clock = "wall"\ngguf = "x"', "write `phases` too"),
    ],
)
def test_what_could_not_be_timed_is_refused_by_its_place(
    tmp_path: Path, text: str, told: str
) -> None:
    """With the file, the model and the key, and the right form."""
    with pytest.raises(ConfigError, match=told) as caught:
        parsed(tmp_path, text)
    assert "asperf.toml: models.it" in str(caught.value)
