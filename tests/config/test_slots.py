from pathlib import Path

import pytest

from pytest_asperf.config.address import SLOTS
from pytest_asperf.config.catalogue import Catalogue, load_catalogue
from pytest_asperf.errors import ConfigError, SlotError, UnfitError
from pytest_asperf.modelfiles.hub_cache import shipped_models

_MODELS = """
[models.mine]
gguf = "mine.gguf"
[models.target]
gguf = "another.gguf"
[models.published]
files = { Q8_0 = "q8.gguf", Q4_K_M = "q4.gguf" }
"""


def catalogue(folder: Path, text: str = "") -> Catalogue:
    """Return the catalogue of a project with models of its own."""
    (folder / "asperf.toml").write_text(text + _MODELS)
    return load_catalogue(folder, shipped_models())


def label(found: Catalogue, address: str) -> str:
    """Return the spec of the model that another spec means."""
    return found.find(address, where="t").label


@pytest.mark.parametrize("slot", [name for name, slot in SLOTS.items() if slot.shipped])
def test_shipped_models_have_the_slots_where_none_is_named(tmp_path: Path, slot: str) -> None:
    """Each slot has a shipped model without any configuration."""
    assert label(catalogue(tmp_path), f"@{slot}") == SLOTS[slot].shipped


@pytest.mark.parametrize("slot", [name for name, slot in SLOTS.items() if not slot.shipped])
def test_programs_that_do_not_come_with_the_package_are_asked_for(
    tmp_path: Path, slot: str
) -> None:
    """No shipped model replaces them; named, they fill the slot."""
    with pytest.raises(SlotError, match=rf"^no model is the {slot} .*slots = {slot}=MOD"):
        catalogue(tmp_path).find(f"@{slot}", where="t")
    named = catalogue(tmp_path, f'slots = {{ {slot} = "mine" }}\n')
    assert label(named, f"@{slot}") == "mine"


def test_a_named_model_has_its_slot_and_no_shipped_one_another(tmp_path: Path) -> None:
    """Only the user's own draft is paired with a user's target."""
    named = catalogue(tmp_path, 'slots = { target = "mine:Q8_0" }\n')
    assert label(named, "@target") == "mine:Q8_0"
    with pytest.raises(SlotError, match=r"^no model is the draft .*: slots = draft=MODEL"):
        named.find("@draft", where="t")


def test_the_default_model_is_the_target(tmp_path: Path) -> None:
    """Naming it names a model, and the slot's own model goes before it."""
    only = catalogue(tmp_path, 'default_model = "mine"\n')
    assert label(only, "@target") == "mine"
    with pytest.raises(SlotError):
        only.find("@moe", where="t")
    both = catalogue(tmp_path, 'default_model = "mine"\nslots = { target = "published:Q8_0" }\n')
    assert label(both, "@target") == "published:Q8_0"


def test_the_target_is_the_large_model_unless_one_is_named(tmp_path: Path) -> None:
    """Only the largest of the slots of three sizes may be left out."""
    named = catalogue(tmp_path, 'slots = { target = "mine" }\n')
    assert label(named, "@large") == "mine"
    with pytest.raises(SlotError, match="no model is the small"):
        named.find("@small", where="t")


def test_a_level_of_the_slot_is_the_default(tmp_path: Path) -> None:
    """A test that names a quantization gets that of the slot's model, which must have it."""
    named = catalogue(tmp_path, 'slots = { target = "published:Q8_0" }\n')
    assert label(named, "@target:Q4_K_M") == "published:Q4_K_M"
    with pytest.raises(UnfitError, match="'published' has no file for quantization F16"):
        named.find("@target:F16", where="t")


def test_a_model_called_like_a_slot_is_a_model(tmp_path: Path) -> None:
    """The sign distinguishes them: no model's name can begin with it."""
    named = catalogue(tmp_path, 'slots = { target = "mine" }\n')
    assert (label(named, "target"), label(named, "@target")) == ("target", "mine")
    with pytest.raises(ConfigError, match=r"models\.'@target': not a usable model name"):
        catalogue(tmp_path, '[models."@target"]\ngguf = "x.gguf"\n')


def test_paths_start_at_the_file(tmp_path: Path) -> None:
    """A slot's relative path is found from any folder that pytest starts in."""
    named = catalogue(tmp_path, 'slots = { target = "models/x.gguf:Q6_K" }\n')
    ref = named.find("@target", where="t")
    assert (ref.spec.gguf, ref.level) == (tmp_path / "models/x.gguf", "Q6_K")


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ('{ targt = "mine" }', "slots: .*unknown model slot 'targt'; did you mean 'target'"),
        ('{ target = "min" }', "slots: target: unknown model 'min'; did you mean 'mine'"),
        ('{ target = "published:Q6_K" }', "slots: target: .* has no file for quantization Q6_K"),
        ('{ target = "@draft" }', "slots: .*it is a model slot, and no model"),
        ("{ target = 3 }", "slots: .* is not usable"),
        ('"mine"', "slots: 'mine' is not usable"),
    ],
)
def test_what_names_no_slot_and_no_model_is_refused(tmp_path: Path, text: str, told: str) -> None:
    """The message names file, key and slot, and the nearest word."""
    with pytest.raises(ConfigError, match=f"asperf.toml: {told}"):
        catalogue(tmp_path, f"slots = {text}\n")


def test_an_unknown_slot_in_a_test_is_refused(tmp_path: Path) -> None:
    """It is an error, and no reason to skip the test."""
    with pytest.raises(
        ConfigError, match="t: unknown model slot 'traget'; did you mean 'target'"
    ) as e:
        catalogue(tmp_path).find("@traget", where="t")
    assert not isinstance(e.value, SlotError)
