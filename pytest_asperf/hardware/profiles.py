"""Hardware profiles: the published facts of each chip and bin, and finding one by name or facts."""

from __future__ import annotations

import functools
import re
from dataclasses import dataclass, fields
from importlib import resources
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, TypeGuard

from pytest_asperf.config.toml_file import parse_toml
from pytest_asperf.errors import ConfigError, HardwareError, listing, shown, suggest

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

_DATA = "data/hardware.toml"
_SCHEMA = 1
_NUMBER = (int, float)
_REQUIRED: Final[Mapping[str, type | tuple[type, ...]]] = {
    "vendor": str,
    "brand_string": str,
    "family": str,
    "tier": str,
    "bandwidth_gbs": _NUMBER,
    "max_memory_gb": int,
    "confidence": str,
    "sources": list,
}
_OPTIONAL: Final[Mapping[str, type | tuple[type, ...]]] = {
    "cores": dict,
    "gpu_cores": int,
    "ane_cores": int,
    "ane_tops": _NUMBER,
    "memory_bus_bits": int,
    "memory_mts": int,
    "sold_memory_gb": list,
    "unconfirmed": list,
    "note": str,
}
#: Keys whose values are fields of a profile as they are.
_PLAIN: Final = (
    *("id", "vendor", "brand_string", "family", "tier", "gpu_cores", "ane_cores", "ane_tops"),
    *("max_memory_gb", "confidence"),
)
_CONFIDENCE = ("high", "medium", "low")
_FILLER = frozenset({"apple", "nvidia", "geforce", "core", "cores", "cpu", "gpu"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Profile:
    """What is published about one chip in one bin.

    Attributes:
        id: ``<chip>`` or ``<chip>-<bin>``, e.g. ``m2ultra-76``.
        brand_string: what the operating system or driver calls the chip; bins may share it.
        cores_by_level: physical CPU cores by level, fastest first; empty for a graphics card.
        ane_tops: neural engine, 10^12 operations/s as published; None where nothing is.
        bandwidth_gbs: memory bandwidth as advertised, decimal GB/s.
        bandwidth_theoretical_gbs: bus width times transfer rate, where both are known.
        sold_memory_gb: memory sizes of this bin, only where they distinguish it from another.
        unconfirmed: fields that rest on a derivation or on general knowledge.
    """

    id: str
    vendor: str
    name: str
    brand_string: str
    family: str
    tier: str
    cores_by_level: tuple[tuple[str, int], ...]
    gpu_cores: int | None
    ane_cores: int | None
    ane_tops: float | None
    bandwidth_gbs: float
    bandwidth_theoretical_gbs: float | None
    max_memory_gb: int
    sold_memory_gb: tuple[int, ...]
    confidence: str
    unconfirmed: tuple[str, ...]
    sources: tuple[str, ...]
    note: str

    @property
    def chip(self) -> str:
        """The id without the bin."""
        return self.id.partition("-")[0]

    @property
    def bin(self) -> str:
        """The id without the chip; empty where the chip has one bin."""
        return self.id.partition("-")[2]

    @property
    def cpu_cores(self) -> int | None:
        """Physical CPU cores of all levels; None for a graphics card."""
        return sum(count for _, count in self.cores_by_level) or None


@dataclass(frozen=True, slots=True)
class Match:
    """Profiles that the facts of a machine leave open, and why it is not exactly one."""

    candidates: tuple[Profile, ...]
    note: str = ""

    @property
    def profile(self) -> Profile | None:
        """The profile, where the facts leave exactly one."""
        return self.candidates[0] if len(self.candidates) == 1 else None


@functools.cache
def load_profiles() -> Mapping[str, Profile]:
    """The shipped profiles by id; raises HardwareError if their file is broken."""
    text = resources.files("pytest_asperf").joinpath(_DATA).read_text(encoding="utf-8")
    return parse_profiles(text, _DATA)


def parse_profiles(text: str, where: str) -> Mapping[str, Profile]:
    """The profiles of one TOML document by id, in the document's order."""
    try:
        document = parse_toml(text, where)
    except ConfigError as error:
        raise _broken(where, f"is not TOML: {error.what}") from error
    chips, sources = document.get("chip"), document.get("sources")
    if document.get("schema") != _SCHEMA or not _is_tables(chips) or not isinstance(sources, dict):
        raise _broken(where, f"needs schema = {_SCHEMA}, [sources] and [[chip]]")
    profiles: dict[str, Profile] = {}
    for row in (row for chip in chips for row in _bins(chip, where)):
        profile = _profile(row, sources, f"{where}: chip {row['id']!r}")
        if profile.id in profiles:
            raise _broken(where, f"has two profiles {profile.id!r}")
        profiles[profile.id] = profile
    return MappingProxyType(profiles)


def find_profile(
    name: str, *, memory_gb: int | None = None, option: str = "--asperf-hardware"
) -> Profile:
    """The profile that a person means by ``name``, in messages the value of `option`.

    Spelling is forgiven: ``m2ultra``, ``M2 Ultra``, ``apple-m2-ultra``, ``m3max-40`` and the
    operating system's brand string all work. A name that leaves several bins open means the
    largest one, provided that all have one bandwidth; the returned id says which it is. With
    `memory_gb`, in GB as on the box, only bins that are sold with it count.

    Raises:
        HardwareError: no profile has the name or the memory, or its bins differ in bandwidth.
    """
    profiles = load_profiles()
    quoted = shown(name, 80)
    words = _words(name)
    bins, rest = _chip_and_rest(words, profiles.values())
    branded = [profile for profile in profiles.values() if _words(profile.brand_string) == words]
    named = branded or _bins_called(rest, bins)
    if not named:
        valid = {profile.id if bins else profile.chip for profile in bins or profiles.values()}
        raise HardwareError(
            f"no hardware profile is called {quoted}{suggest(name[:80].casefold(), valid)}",
            why="limits and recorded numbers belong to one known chip",
            remedy=f"name one of: {listing(valid)}",
            opt_out=f"{option}=auto uses what is detected",
        )
    if memory_gb is not None:
        named = _sold_with(memory_gb, named, quoted)
    if len({profile.bandwidth_gbs for profile in named}) > 1:
        several = ", ".join(f"{profile.id} ({profile.bandwidth_gbs:g} GB/s)" for profile in named)
        raise HardwareError(
            f"hardware {quoted} stands for several chips: {several}",
            why="they differ in memory bandwidth, which bounds the token rate",
            remedy=f"name the bin, e.g. {option}={named[-1].id}",
            opt_out=f"{option}=auto uses what is detected",
        )
    return max(named, key=lambda profile: (profile.gpu_cores or 0, profile.cpu_cores or 0))


def match_profile(
    brand_string: str | None,
    *,
    gpu_cores: int | None = None,
    cpu_cores: int | None = None,
    memory_bytes: int | None = None,
) -> Match:
    """The profiles that the facts of a machine allow.

    A fact in which the remaining bins differ has to be known: an unknown one leaves all of them
    open, and no other fact is taken in its place.
    """
    if not brand_string:
        return Match((), "the chip's name could not be read")
    brand = _brand_key(brand_string)
    bins = tuple(p for p in load_profiles().values() if _brand_key(p.brand_string) == brand)
    if not bins:
        return Match((), f"no profile for {brand_string[:80]!r}")
    memory_gib = None if memory_bytes is None else round(memory_bytes / 2**30)
    for fact, known, of_bin in (
        ("GPU cores", gpu_cores, lambda p: (p.gpu_cores,)),
        ("CPU cores", cpu_cores, lambda p: (p.cpu_cores,)),
        ("GB of memory", memory_gib, lambda p: p.sold_memory_gb),
    ):
        by_bin = {of_bin(profile) for profile in bins}
        if known is None and len(by_bin) > 1:
            ids = ", ".join(profile.id for profile in bins)
            return Match(bins, f"it may be {ids}: the number of {fact} could not be read")
        if known is not None and by_bin not in ({()}, {(None,)}):
            bins = tuple(profile for profile in bins if known in of_bin(profile))
        if not bins:
            return Match((), f"no known bin of {brand_string[:80]!r} has {known} {fact}")
    return Match(bins)


def same_brand(one: str, other: str) -> bool:
    """Whether two strings of an operating system or driver name the same chip."""
    return _brand_key(one) == _brand_key(other)


def _brand_key(brand_string: str) -> str:
    # Drivers before 2021 leave the vendor out of a card's name.
    return brand_string.strip().casefold().removeprefix("nvidia ")


def _words(name: str) -> tuple[str, ...]:
    words = re.split(r"[^a-z0-9]+", name[:80].casefold())
    return tuple(word for word in words if word and word not in _FILLER)


def _chip_and_rest(words: Sequence[str], profiles: Iterable[Profile]) -> tuple[list[Profile], str]:
    """All bins of the chip that the first words name, and what the others say."""
    bins: dict[str, list[Profile]] = {}
    for profile in profiles:
        bins.setdefault(profile.chip, []).append(profile)
    for split in range(len(words), 0, -1):
        if chip := bins.get("".join(words[:split])):
            return chip, "".join(words[split:])
    return [], ""


def _bins_called(rest: str, bins: list[Profile]) -> list[Profile]:
    if not rest:
        return bins
    exact = [profile for profile in bins if profile.bin.replace("-", "") == rest]
    return exact or [profile for profile in bins if str(profile.gpu_cores) == rest]


def _sold_with(memory_gb: int, bins: list[Profile], quoted: str) -> list[Profile]:
    having = [
        profile
        for profile in bins
        if memory_gb in (profile.sold_memory_gb or range(1, profile.max_memory_gb + 1))
    ]
    if not having:
        most = ", ".join(f"{profile.id} up to {profile.max_memory_gb} GB" for profile in bins)
        raise HardwareError(
            f"hardware {quoted} is not sold with {shown(memory_gb, 20)} GB: {most}",
            why="what fits depends on a memory size that there is",
            remedy="correct the memory size or the name",
        )
    return having


def _bins(chip: Mapping[str, Any], where: str) -> Iterable[dict[str, Any]]:
    common = {key: value for key, value in chip.items() if key != "bin"}
    bins = chip.get("bin", [{}])
    if not isinstance(common.get("id"), str) or "-" in common["id"] or not _is_tables(bins):
        raise _broken(where, "needs an id without '-' for every [[chip]], and tables as its bins")
    for row in bins:
        suffix = f"-{row['id']}" if "id" in row else ""
        yield common | row | {"id": common["id"] + suffix}


def _profile(row: Mapping[str, Any], sources: Mapping[str, Any], where: str) -> Profile:
    _check(row, sources, where)
    levels = tuple(row.get("cores", {}).items())
    sold = tuple(row.get("sold_memory_gb", ()))
    name = row["brand_string"]
    if levels:
        name += f", {sum(n for _, n in levels)}-core CPU, {row.get('gpu_cores')}-core GPU"
    if sold:
        name += f", {max(sold)} GB"
    bits, mts = row.get("memory_bus_bits"), row.get("memory_mts")
    plain: dict[str, Any] = {key: row.get(key) for key in _PLAIN}
    return Profile(
        **plain,
        name=name,
        cores_by_level=levels,
        bandwidth_gbs=float(row["bandwidth_gbs"]),
        bandwidth_theoretical_gbs=bits * mts / 8000 if bits and mts else None,
        sold_memory_gb=sold,
        unconfirmed=tuple(row.get("unconfirmed", ())),
        sources=tuple(sources[key] for key in row["sources"]),
        note=row.get("note", ""),
    )


def _check(row: Mapping[str, Any], sources: Mapping[str, Any], where: str) -> None:
    known = {"id": str, **_REQUIRED, **_OPTIONAL}
    for key, value in row.items():
        if key not in known:
            raise _broken(where, f"has an unknown key {key!r}{suggest(key, known)}")
        positive = not isinstance(value, _NUMBER) or (value > 0 and not isinstance(value, bool))
        if not isinstance(value, known[key]) or not positive:
            raise _broken(where, f"has a value of the wrong kind for {key!r}: {shown(value)}")
    if missing := _REQUIRED.keys() - row.keys():
        raise _broken(where, f"lacks {listing(missing)}")
    if row["confidence"] not in _CONFIDENCE:
        raise _broken(where, f"has confidence {row['confidence']!r}, not {listing(_CONFIDENCE)}")
    lists = (
        ("sources", row["sources"], sources),
        ("unconfirmed", row.get("unconfirmed", ()), {field.name for field in fields(Profile)}),
    )
    for key, values, valid in lists:
        if strangers := [value for value in values if value not in valid]:
            raise _broken(where, f"names an unknown entry in {key!r}: {strangers[0]!r}")
    counts = (*row.get("cores", {}).values(), *row.get("sold_memory_gb", ()))
    if not all(type(count) is int and count > 0 for count in counts):
        raise _broken(where, "has a core count or memory size that is no positive integer")


def _is_tables(value: object) -> TypeGuard[list[dict[str, Any]]]:
    return isinstance(value, list) and all(isinstance(row, dict) for row in value) and bool(value)


def _broken(where: str, fault: str) -> HardwareError:
    return HardwareError(
        f"{where} {fault}",
        why="a wrong profile gives wrong limits",
        remedy="mend the file; if it came with pytest-asperf, reinstall or report it",
    )
