from importlib import resources

import pytest

from pytest_asperf.hardware.profiles import load_profiles
from pytest_asperf.published.records import derived_checks, parse_recorded, shipped_records

DOCUMENTS = ("arxiv-2508.08531", "atom-page", "atom-paper", "disagg-page", "mac-guide")


def test_every_document_ships_under_its_name() -> None:
    """A source's id is the name of its file."""
    assert tuple(document.source.id for document in shipped_records().documents) == DOCUMENTS
    folder = resources.files("pytest_asperf").joinpath("data/recorded")
    for id_ in DOCUMENTS:
        assert folder.joinpath(f"{id_}.toml").is_file()


def test_shipped_figures_name_hardware_that_is_known() -> None:
    """Every hardware id is a profile or a chip of the shipped profiles."""
    known = {name for profile in load_profiles().values() for name in (profile.id, profile.chip)}
    named = {cell.scope.hardware for cell in shipped_records().cells()} - {""}
    assert named
    assert named - known == set()


def test_derived_figures_follow_but_for_those_that_say_so() -> None:
    """Recomputed, exactly those figures do not follow that the data lists with a reason."""
    checks = derived_checks(shipped_records())
    assert [str(one) for one in checks if one.follows != one.derivation.follows] == []
    wrong = {check.cell.id for check in checks if not check.follows}
    assert "atom-paper/perplexity/Q3_K_M/dppl_pct" in wrong
    assert "atom-paper/sd-claims/formula/tg" in wrong
    assert "atom-paper/quant-ladder/Q6_K/speedup" not in wrong


def test_a_changed_figure_is_noticed() -> None:
    """A slip of one digit in the shipped data does not pass the recomputation."""
    folder = resources.files("pytest_asperf").joinpath("data/recorded")
    text = folder.joinpath("atom-paper.toml").read_text(encoding="utf-8")
    assert text.count("speedup = 1.98") == 2
    changed = parse_recorded(
        [("atom-paper.toml", text.replace("speedup = 1.98", "speedup = 1.89"))]
    )
    checks = derived_checks(changed)
    wrong = [one.cell.id for one in checks if one.follows != one.derivation.follows]
    assert wrong == ["atom-paper/quant-ladder/Q2_K/speedup"]


@pytest.mark.parametrize(
    ("id_", "printed", "spread"),
    [
        ("atom-paper/quant-ladder/Q6_K/tg", "62.0", "sd 13.6885 (n = 3)"),
        ("atom-paper/perplexity/Q6_K/ppl", "11.115", "standard error 0.607 (n = 10)"),
        (
            "atom-paper/perplexity/Q6_K/dppl_pct",
            "0.54",
            "95% interval 0.02 to 1.05 (n = 10)",
        ),
        ("disagg-page/mlx/9b-8bit-medium/memory", "10.00", "not published"),
        ("disagg-page/ttft/short/ane_lm", "769", "758 to 978 observed (n = 3)"),
        ("mac-guide/mlx-vs-llama/qwen2.5-27b/advantage", "Tied", "not published"),
        ("mac-guide/best-m4max/fast-moe/tg", "64-92", "not published"),
        ("mac-guide/ceiling/m4/tg_70b", "N/A", "not published"),
        ("arxiv-2508.08531/scale/quantisation-schemes/count", "14", "not published"),
        ("atom-page/perplexity/Q3_K_M/dppl_pct", "14.6", "not published"),
    ],
)
def test_figures_are_as_printed(id_: str, printed: str, spread: str) -> None:
    """Decimals, ranges and words survive, with the logs' own spread."""
    cell = shipped_records().by_id()[id_]
    assert (cell.printed.text, str(cell.spread)) == (printed, spread)
