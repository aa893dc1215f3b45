"""Hardware profiles: published facts of each chip variant, found by name or by facts."""

import functools
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from importlib import resources
from types import MappingProxyType
from typing import Any, Final

from pytest_asperf.config.table import (
    TABLE,
    TEXT,
    CheckedTable,
    Rule,
    list_of,
    number,
    one_of,
    whole,
)
from pytest_asperf.config.text_file import open_document, twice
from pytest_asperf.errors import (
    Advice,
    ConfigError,
    HardwareError,
    HardwareNameError,
    listing,
    shown,
    suggest,
)

_DATA = "data/hardware.toml"
_FILLER = frozenset({"apple", "nvidia", "geforce", "core", "cores", "cpu", "gpu"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Profile:
    """The published facts about one chip variant."""

    id: str  #: ``<chip>`` or ``<chip>-<bin>``, e.g. ``m2ultra-76``
    vendor: str
    name: str
    brand_string: str  #: the operating system's or driver's name of the chip; variants may share it
    family: str
    tier: str
    #: physical CPU cores by core type, fastest first; empty for a graphics card
    cores_by_level: tuple[tuple[str, int], ...]
    gpu_cores: int | None = None
    ane_cores: int | None = None
    #: neural engine, 10^12 operations/s as published; None if nothing is
    ane_tops: float | None = None
    bandwidth_gbs: float  #: memory bandwidth as advertised, decimal GB/s
    bandwidth_theoretical_gbs: float | None  #: bus width times transfer rate, if both are known
    max_memory_gb: int
    #: memory sizes of this chip variant, only if they distinguish it from another
    sold_memory_gb: tuple[int, ...] = ()
    confidence: str
    unconfirmed: tuple[str, ...] = ()  #: fields from a derivation or from general knowledge
    sources: tuple[str, ...]
    note: str = ""

    @property
    def chip(self) -> str:
        """The id without the chip variant."""
        return self.id.partition("-")[0]

    @property
    def bin(self) -> str:
        """The id without the chip; empty if the chip has one variant."""
        return self.id.partition("-")[2]

    @property
    def cpu_cores(self) -> int | None:
        """Physical CPU cores of all types; None for a graphics card."""
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
    """The profiles of a TOML document by id, in its order; `data/hardware.toml` has the schema."""
    profiles: dict[str, Profile] = {}
    try:
        document = open_document(text, where)
        document.only(("schema", "sources", "chip"))
        sources = document.inner("sources", document.values.get("sources"))
        for row in (row for chip in document.entries("chip") for row in _bins(document, chip)):
            profile = _profile(row, sources)
            if profile.id in profiles:
                raise twice(f"{where}: profile", profile.id)
            profiles[profile.id] = profile
    except ConfigError as error:
        raise HardwareError(
            error.what,
            why="a wrong profile gives wrong limits",
            remedy=f"{error.remedy}; a file that came with pytest-asperf: reinstall or report it",
        ) from error
    return MappingProxyType(profiles)


def find_bins(name: str, *, memory_gb: int | None = None) -> tuple[Profile, ...]:
    """The profiles that a person means by ``name``: one chip variant, or all variants of a chip.

    Spelling is forgiven: ``m2ultra``, ``M2 Ultra``, ``apple-m2-ultra``, ``m3max-40`` and the
    operating system's brand string all work. With `memory_gb`, in GB as on the box, only variants
    that are sold with it count.
    """
    profiles, quoted = load_profiles(), shown(name, 80)
    words = _words(name)
    bins, rest = _chip_and_rest(words, profiles.values())
    branded = [profile for profile in profiles.values() if _words(profile.brand_string) == words]
    named = branded or _bins_called(rest, bins)
    if not named:
        valid = {profile.id if bins else profile.chip for profile in bins or profiles.values()}
        raise HardwareNameError(
            f"no hardware profile is called {quoted}{suggest(name[:80].casefold(), valid)}",
            why="limits and published figures belong to one known chip",
            remedy=f"name one of: {listing(valid)}",
            opt_out=Advice("use what is detected", hardware="auto"),
        )
    return tuple(named if memory_gb is None else _sold_with(memory_gb, named, quoted))


def find_profile(name: str, *, memory_gb: int | None = None) -> Profile:
    """The one profile for ``name``: of several chip variants the largest.

    The arguments are those of `find_bins`. The returned id names the chip variant.
    """
    named = find_bins(name, memory_gb=memory_gb)
    if len({profile.bandwidth_gbs for profile in named}) > 1:
        several = ", ".join(f"{profile.id} ({profile.bandwidth_gbs:g} GB/s)" for profile in named)
        raise HardwareNameError(
            f"hardware {shown(name, 80)} means several chips: {several}",
            why="they differ in memory bandwidth, which bounds the token rate",
            remedy=Advice("name the variant, such as", hardware=named[-1].id),
            opt_out=Advice("use what is detected", hardware="auto"),
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

    A fact in which the remaining chip variants differ must be known: an unknown one leaves all of
    them open, and no other fact is used instead.
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
            return Match((), f"no known variant of {brand_string[:80]!r} has {known} {fact}")
    return Match(bins)


def same_brand(one: str, other: str) -> bool:
    """True if two strings of an operating system or driver name the same chip."""
    return _brand_key(one) == _brand_key(other)


def _brand_key(brand_string: str) -> str:
    # Drivers before 2021 leave the vendor out of a card's name.
    return brand_string.strip().casefold().removeprefix("nvidia ")


def _words(name: str) -> tuple[str, ...]:
    words = re.split(r"[^a-z0-9]+", name[:80].casefold())
    return tuple(word for word in words if word and word not in _FILLER)


def _chip_and_rest(words: Sequence[str], profiles: Iterable[Profile]) -> tuple[list[Profile], str]:
    """All variants of the chip in the first words, and the other words' conditions."""
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
        raise HardwareNameError(
            f"hardware {quoted} is not sold with {shown(memory_gb, 20)} GB: {most}",
            why="what fits depends on a memory size that there is",
            remedy="correct the memory size or the name",
        )
    return having


_COUNT: Final = whole(1, 10**6)
_POSITIVE: Final = number("a number above 0", usable=lambda value: value > 0)
_REQUIRED: Final[Mapping[str, Rule[Any]]] = {
    **dict.fromkeys(("id", "vendor", "brand_string", "family", "tier"), TEXT),
    "bandwidth_gbs": _POSITIVE,
    "max_memory_gb": _COUNT,
    "confidence": one_of(("high", "medium", "low")),
}
_OPTIONAL: Final[Mapping[str, Rule[Any]]] = {
    "cores": Rule(
        lambda value: {level: _COUNT.read(n) for level, n in TABLE.read(value).items()},
        "a table of core counts by level",
    ),
    **dict.fromkeys(("gpu_cores", "ane_cores", "memory_bus_bits", "memory_mts"), _COUNT),
    "ane_tops": _POSITIVE,
    "sold_memory_gb": list_of(_COUNT, "a list of sizes in GB"),
    "unconfirmed": list_of(one_of([field.name for field in fields(Profile)]), "a list of fields"),
    "note": TEXT,
}


def _bins(document: CheckedTable, entry: object) -> Iterator[CheckedTable]:
    """The variants of a chip, each with the chip's keys below its own."""
    name = entry.get("id", "?") if isinstance(entry, dict) else "?"
    chip = document.inner(f"chip {name}", entry)
    if "-" in chip.need("id", TEXT):
        chip.refuse("id", "write an id without '-': it separates a chip from its variant")
    common = {key: value for key, value in chip.values.items() if key != "bin"}
    for row in chip.entries("bin") if "bin" in chip.values else [{}]:
        own = chip.inner("bin", row).values
        id_ = f"{name}-{own['id']}" if "id" in own else name
        place = document.at(f"chip {id_}")
        yield replace(chip, place=place, values={**common, **own, "id": id_})


def _profile(table: CheckedTable, sources: CheckedTable) -> Profile:
    facts = table.read(_REQUIRED, _OPTIONAL, ("sources",))
    cited = table.need("sources", list_of(one_of(sources.values), "a list of names in [sources]"))
    levels = tuple(facts.pop("cores", {}).items())
    name = facts["brand_string"]
    if levels:
        name += f", {sum(n for _, n in levels)}-core CPU, {facts.get('gpu_cores')}-core GPU"
    if sold := facts.get("sold_memory_gb"):
        name += f", {max(sold)} GB"
    bits, mts = facts.pop("memory_bus_bits", None), facts.pop("memory_mts", None)
    return Profile(
        name=name,
        cores_by_level=levels,
        bandwidth_theoretical_gbs=bits * mts / 8000 if bits and mts else None,
        sources=tuple(sources.text(key, required=True) for key in cited),
        **facts,
    )
