import contextlib
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_asperf.errors import HardwareError
from pytest_asperf.hardware.profiles import (
    find_profile,
    load_profiles,
    match_profile,
    parse_profiles,
)

_GIB = 2**30
_MINIMAL = """
schema = 1
[sources]
a = "A"
[[chip]]
id = "x1"
vendor = "v"
brand_string = "X 1"
family = "X"
tier = "base"
bandwidth_gbs = 100
max_memory_gb = 8
confidence = "high"
sources = ["a"]
"""


def test_every_advertised_bandwidth_is_near_the_derived_one() -> None:
    """Bus width times transfer rate reproduces the vendor's advertised rate, within 5 %."""
    derived = [p for p in load_profiles().values() if p.bandwidth_theoretical_gbs is not None]
    assert len(derived) > 40
    for profile in derived:
        assert profile.bandwidth_gbs == pytest.approx(profile.bandwidth_theoretical_gbs, rel=0.05)


def test_every_apple_profile_is_complete_and_told_apart() -> None:
    """No two Apple profiles share brand, GPU cores, CPU cores and memory sizes."""
    apple = [p for p in load_profiles().values() if p.vendor == "apple"]
    keys = {(p.brand_string, p.gpu_cores, p.cpu_cores, p.sold_memory_gb) for p in apple}
    assert len(keys) == len(apple)
    assert all(p.ane_cores in (16, 32) and p.cpu_cores and p.gpu_cores for p in apple)
    assert len({p.name for p in apple}) == len(apple)


def test_no_source_hides_where_a_figure_comes_from() -> None:
    """Every profile cites at least one source, in words."""
    for profile in load_profiles().values():
        assert profile.sources
        assert all(len(source) > 20 for source in profile.sources)


@pytest.mark.parametrize("profile_id", load_profiles())
def test_each_id_finds_its_own_profile(profile_id: str) -> None:
    """An id is always an exact name."""
    assert find_profile(profile_id).id == profile_id


@pytest.mark.parametrize("profile_id", load_profiles())
def test_each_profile_is_found_by_its_own_facts(profile_id: str) -> None:
    """A machine that has exactly a profile's facts gets that profile."""
    profile = load_profiles()[profile_id]
    match = match_profile(
        profile.brand_string,
        gpu_cores=profile.gpu_cores,
        cpu_cores=profile.cpu_cores,
        memory_bytes=profile.max_memory_gb * _GIB,
    )
    assert match.profile == profile
    assert match.note == ""


@pytest.mark.parametrize(
    ("name", "profile_id"),
    [
        ("m2ultra", "m2ultra-76"),
        ("M2 Ultra", "m2ultra-76"),
        ("apple-m2-ultra", "m2ultra-76"),
        ("Apple M2 Ultra", "m2ultra-76"),
        ("m2ultra-60", "m2ultra-60"),
        ("m3max-40", "m3max-40"),
        ("Apple M3 Max (30-core GPU)", "m3max-30"),
        ("m1pro", "m1pro-16"),
        ("m1pro-14", "m1pro-10-14"),
        ("M1 Pro 8 14", "m1pro-8-14"),
        ("m6 16GB", "m6-16gb"),
        ("A18 Pro", "a18pro"),
        ("RTX 4090", "rtx4090"),
        ("NVIDIA GeForce RTX 4090", "rtx4090"),
        ("NVIDIA H100 80GB HBM3", "h100-sxm"),
        ("H200", "h200"),
    ],
)
def test_spelling_is_forgiven(name: str, profile_id: str) -> None:
    """A person's spelling finds the profile, and a bare name the largest variant."""
    assert find_profile(name).id == profile_id


@pytest.mark.parametrize("name", ["m3max", "M4 Max", "apple-m5-max", "m6", "h100"])
def test_a_name_for_several_bandwidths_is_refused(name: str) -> None:
    """If variants differ in bandwidth, the bare name is an error that lists them."""
    with pytest.raises(HardwareError, match=r"means several chips: .*-\w+ \(\d+ GB/s\), "):
        find_profile(name)


@pytest.mark.parametrize(
    ("name", "hint"),
    [("m3mx", "m3max"), ("m2ulta", "m2ultra"), ("m3max-41", "m3max-40"), ("h100-sxn", "h100-sxm")],
)
def test_an_unknown_name_gets_the_nearest(name: str, hint: str) -> None:
    """A misspelt chip or variant raises with a suggestion."""
    with pytest.raises(HardwareError, match=re.escape(f"did you mean '{hint}'?")):
        find_profile(name)


def test_an_unknown_bin_gets_those_of_its_chip() -> None:
    """If the chip is clear, only its variants are offered."""
    with pytest.raises(HardwareError) as caught:
        find_profile("M6-8GB")
    assert caught.value.remedy == "name one of: m6-16gb, m6-32gb"


@given(st.text())
def test_any_name_is_found_or_refused(name: str) -> None:
    """No text given as a name makes anything but a profile or the one error."""
    with contextlib.suppress(HardwareError):
        assert find_profile(name).id in load_profiles()


@pytest.mark.parametrize(
    ("brand", "gpu_cores", "cpu_cores", "gib"),
    [
        ("Apple M3 Max", 36, 14, 36),
        ("Apple M6", 12, 12, 48),
        ("Apple M1", 8, 4, 16),
        ("Apple processor", 8, 8, 8),
        ("Apple M99", 8, 8, 8),
        ("", None, None, None),
    ],
)
def test_facts_of_no_known_bin_are_no_profile(
    brand: str, gpu_cores: int | None, cpu_cores: int | None, gib: int | None
) -> None:
    """A fact that no variant has, or an unknown name, gives no candidate and the reason."""
    memory_bytes = None if gib is None else gib * _GIB
    match = match_profile(
        brand, gpu_cores=gpu_cores, cpu_cores=cpu_cores, memory_bytes=memory_bytes
    )
    assert match.candidates == ()
    assert match.note


def test_an_old_driver_leaves_out_the_vendor() -> None:
    """A card's name without its vendor still matches."""
    match = match_profile("GeForce RTX 4090")
    assert match.profile is not None
    assert match.profile.id == "rtx4090"


@pytest.mark.parametrize(
    ("broken", "named"),
    [
        ("not toml at all [", "is not valid TOML"),
        ("schema = 2", "has no schema = 1"),
        (_MINIMAL.replace('id = "x1"', 'id = "x-1"'), "chip x-1: id: 'x-1' is not usable"),
        (_MINIMAL.replace('tier = "base"', ""), "chip x1: tier: is missing"),
        (_MINIMAL + "gpu_core = 8", "unknown key 'gpu_core'; did you mean 'gpu_cores'"),
        (_MINIMAL + "gpu_cores = -8", "gpu_cores: -8 is not usable"),
        (_MINIMAL + "gpu_cores = true", "gpu_cores: True is not usable"),
        (_MINIMAL + 'cores = { P = "4" }', "cores: {'P': '4'} is not usable"),
        (_MINIMAL + 'unconfirmed = ["speed"]', "unconfirmed: ['speed'] is not usable"),
        (_MINIMAL.replace('["a"]', '["b"]'), "sources: ['b'] is not usable"),
        (_MINIMAL.replace('"high"', '"sure"'), "confidence: 'sure' is not usable"),
        (_MINIMAL + "bin = [{}, {}]", "profile 'x1' is there twice"),
    ],
)
def test_a_broken_document_names_its_fault(broken: str, named: str) -> None:
    """Each fault of a profile document is an error that names document and key."""
    with pytest.raises(HardwareError) as caught:
        parse_profiles(broken, "chips.toml")
    assert "chips.toml" in caught.value.what
    assert named in caught.value.what
