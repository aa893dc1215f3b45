"""Output of llama.cpp's own binaries (build 0c1e570), saved on a CPU with the shipped models."""

from collections.abc import Callable

import pytest

from pytest_asperf.audit.known import Options
from pytest_asperf.audit.result import Audit


@pytest.mark.parametrize("form", ["json", "jsonl", "csv", "sql", "md"])
def test_llama_bench(
    form: str, recorded: Callable[[str], str], audit_of: Callable[..., Audit]
) -> None:
    """Each form has both tests; all but Markdown show requested settings that were not resolved."""
    (found,) = audit_of({"bench": recorded(f"bench.{form}")}, Options(repetitions=6)).files
    assert [figure.name.split()[0] for figure in found.figures] == ["pp64", "tg32"]
    assert all(figure.value is not None and figure.value.n == 6 for figure in found.figures)
    unresolved = {note.partition("=")[0] for note in found.notes if "is unknown" in note}
    assert unresolved == (set() if form == "md" else {"n_gpu_layers", "flash_attn"})


def test_llama_perplexity(recorded: Callable[[str], str], audit_of: Callable[..., Audit]) -> None:
    """Q8_0 costs nothing that 12 chunks show and Q4_K_M a few per cent, against the log of F16."""
    levels = ("Q4_K_M", "Q8_0", "F16")
    found = audit_of({f"ppl_{level}.txt": recorded(f"ppl_{level}.txt") for level in levels})
    assert found.exit_code == 0
    (pairs,) = found.together
    changes = {figure.name: figure.value for figure in pairs.figures}
    q4, q8 = (changes[f"ppl_{level}.txt vs ppl_F16.txt"] for level in levels[:2])
    assert q4 is not None
    assert q8 is not None
    assert q4.shown_above(0.01)
    assert not q8.shown_above(0)
    assert q8.shown_below(0.01)


@pytest.mark.parametrize("name", ["speculative_simple.txt", "speculative_simple_verbose.txt"])
def test_llama_speculative_simple(
    name: str, recorded: Callable[[str], str], audit_of: Callable[..., Audit]
) -> None:
    """A sound run trips nothing, and the text is separated from the log around it."""
    (found,) = audit_of({"sd": recorded(name)}).files
    assert found.guard_findings == []
    assert [figure.name for figure in found.figures] == ["TG", "acceptance", "rounds"]
    assert found.figures[1].text == "59.74% of 77 drafted tokens"
    if "verbose" in name:
        assert dict(found.ran)["target"] == "asperf-target, F16, 15 MB; all weights on the CPU"


def test_llama_server(recorded: Callable[[str], str], audit_of: Callable[..., Audit]) -> None:
    """Six requests of 40 tokens: the rate is printed over 39 steps, so nothing is corrected."""
    (found,) = audit_of({"server": recorded("server.txt")}).files
    figures = {figure.name: figure for figure in found.figures}
    generated = figures["TG"].value
    assert generated is not None
    assert generated.n == 6
    assert generated.high == pytest.approx(1949.3, abs=1)
    assert figures["acceptance"].text == "67.33% of 251 drafted tokens"
    assert found.notes == []
    assert found.guard_findings == []
