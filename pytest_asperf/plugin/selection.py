"""From a test's markers to the models that it measures; quant sweeps that share a pass."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING

import pytest

from pytest_asperf.config.address import Address, parse_path
from pytest_asperf.config.catalogue import Catalogue, at_level
from pytest_asperf.config.engine_settings import EngineSettings
from pytest_asperf.config.engines import Engine, parse_level
from pytest_asperf.config.markers import Marks, is_address
from pytest_asperf.config.spec import NGRAM_DRAFT, ModelRef, Pairing
from pytest_asperf.errors import AsperfError, ConfigError
from pytest_asperf.plugin.parsing import marks_of, read_marks
from pytest_asperf.plugin.skips import skip
from pytest_asperf.plugin.stash import session_of

if TYPE_CHECKING:
    from pytest_asperf.plugin.session import Session


@dataclass(frozen=True)
class Selection:
    """The models that one test's markers name, each looked up once, of those that it can name.

    Everything here raises ConfigError for an unknown model or quantization.
    """

    nodeid: str
    marks: Marks
    catalogue: Catalogue

    @property
    def address(self) -> Address:
        """The spec of the measured model, with a slot's model instead of the slot."""
        mark = self.marks.model
        address = mark.address if mark else self.catalogue.settings.default_model
        levels = bool(self.marks.levels)
        return self.catalogue.resolved(address, where=self.nodeid, at=levels)

    @property
    def chunks(self) -> int | None:
        """The most chunks for the test's quant sweep; None for the session's number."""
        ladder = self.marks.ladder or self.marks.kv_ladder
        return ladder.chunks if ladder else None

    @cached_property
    def named(self) -> ModelRef:
        """The model of the spec, before a quantization is chosen; its engine has each named one."""
        ref = self._addressed
        for marker, levels in self.marks.levels.items():
            for level in levels:
                where = f"{self.nodeid}: @pytest.mark.{marker}"
                parse_level(level, where=where, engine=ref.spec.engine)
        return ref

    @cached_property
    def _addressed(self) -> ModelRef:
        engine = self.marks.model.engine if self.marks.model else None
        return self._find(self.address, engine)

    @property
    def judged(self) -> ModelRef:
        """The model of the test's subject, a pair's target; markers' quantizations are not read."""
        pair = self.marks.speculative
        return self.catalogue.find(pair.target, where=self.nodeid) if pair else self._addressed

    def model(self, level: str | None = None, kv_type: str | None = None) -> ModelRef:
        """The measured model: at one quantization of the test's sweep, or of the marker.

        An entry of a `quant_ladder` is a quantization, or another model's spec.
        """
        ref = self.named
        level = level or (self.marks.quant.level if self.marks.quant else None)
        if level is not None and is_address(level):
            ref = self._find(level, ref.spec.engine)
        elif level is not None:
            ref = at_level(ref, level, where=self.nodeid)
        if kv_type is not None and self.marks.kv_ladder is not None:
            ref = ref.with_kv(self.marks.kv_ladder.types[kv_type])
        return ref

    def model_on(self, engine: Engine) -> ModelRef:
        """The model on another engine, without a quantization."""
        return self._find(replace(self.address, level=None), engine)

    def baseline(self, ref: ModelRef) -> ModelRef:
        """The baseline of a sweep's entry, which must not be the entry itself.

        It differs in one thing: the quantization of the weights or, if that is the baseline's, the
        type of the KV cache.
        """
        if self.marks.ladder is not None:  # whose entries may be other models
            return replace(self.model(), level=self.marks.ladder.baseline)
        if self.marks.kv_ladder is None and ref.level not in {None, "F16"}:
            return replace(ref, level="F16")
        plain = ref.with_kv(EngineSettings())
        if plain == ref:
            raise ConfigError(
                f"{self.nodeid}: {ref.label} has no quantization to compare with F16, and no KV "
                "cache to compare with F16",
                why="ΔPPL and KLD compare two quantizations of the weights, or two types of "
                "the cache",
                remedy='mark the test with quant("Q6_K"), quant_ladder("Q8_0", "Q6_K") or '
                'kv_ladder("q8_0")',
            )
        return plain

    @cached_property
    def rungs(self) -> dict[str, ModelRef]:
        """The entries of the test's sweep by name, each once; none if it has no sweep."""
        levels = self.marks.ladder.levels if self.marks.ladder else ()
        types = self.marks.kv_ladder.types if self.marks.kv_ladder else ()
        rungs = {level: self.model(level) for level in levels}
        refs = tuple(rungs.values())
        labels = [ref.label for ref in (*refs, *map(self.baseline, refs[:1]))]
        if repeated := [label for label in labels if labels.count(label) > 1]:
            raise ConfigError(
                f"{self.nodeid}: {repeated[0]} is named twice in the marker, the baseline included",
                why="a quantization compared with itself shows nothing",
                remedy="name each once; give one of two models of the same name another",
            )
        return rungs | {name: self.model(None, name) for name in types}

    @cached_property
    def pairing(self) -> Pairing | None:
        """The draft and the target that the `speculative` marker names; None without one."""
        mark = self.marks.speculative
        if mark is None:
            return None
        target = self.catalogue.find(mark.target, where=self.nodeid)
        return Pairing(
            target,
            self.draft(target, mark.draft),
            k=mark.k,
            temperature=mark.temperature,
            n_tokens=mark.n_tokens,
            rollback=mark.rollback,
            prompts=parse_path(mark.prompts, self.catalogue.folder) if mark.prompts else None,
        )

    def draft(self, target: ModelRef, address: str | Address) -> ModelRef | None:
        """A target's draft, on the target's engine; None for lookup in the text."""
        if str(address) == NGRAM_DRAFT:
            return None
        return self.catalogue.find(address, where=self.nodeid, engine=target.spec.engine)

    def _find(self, address: str | Address, engine: Engine | None) -> ModelRef:
        ref = self.catalogue.find(address, where=self.nodeid, engine=engine)
        if self.marks.model is None:
            return ref
        return ModelRef(ref.spec.with_settings(self.marks.model.settings), ref.level)


_SELECTION = pytest.StashKey[Selection]()
#: By baseline and number of chunks: the sweep entries of all tests that share them.
_JOINT = pytest.StashKey[dict[tuple[ModelRef, "int | None"], tuple[ModelRef, ...]]]()


def selection_of(item: pytest.Item) -> Selection:
    """The models that a test's markers name, made once for each set of markers."""
    marks = marks_of(item)
    selection = item.stash.get(_SELECTION, None)
    if selection is None or selection.marks is not marks:
        selection = Selection(item.nodeid, marks, session_of(item.config).catalogue)
        item.stash[_SELECTION] = selection
    return selection


def name_models(session: Session, items: Iterable[pytest.Item]) -> None:
    """Give distinct names to models that tests name by paths."""
    addresses = {session.settings.default_model, *session.settings.slots.values()}
    for item in items:
        try:
            addresses |= marks_of(item).addresses
        except ConfigError:  # the test's own set-up reports it
            continue
    session.catalogue = session.catalogue.telling_apart(addresses)


def plan_ladders(config: pytest.Config, items: Iterable[pytest.Item]) -> None:
    """Join the sweeps of all tests that share a baseline, so that one pass scores them."""
    joint = config.stash.setdefault(_JOINT, {})
    for item in items:
        if not any(map(item.get_closest_marker, ("quant_ladder", "kv_ladder"))):
            continue
        try:
            selection = selection_of(item)
            rungs = _measured_rungs(item, selection.rungs)
            if not rungs:  # a closer quant marker replaces the sweep
                continue
            key = selection.baseline(rungs[0]), selection.chunks
        except AsperfError:  # the test's own set-up reports it
            continue
        joint[key] = tuple(dict.fromkeys((*joint.get(key, ()), *rungs)))


def joint_rungs(
    item: pytest.Item, baseline: ModelRef, rungs: tuple[ModelRef, ...]
) -> tuple[ModelRef, ...]:
    """The entries to score in one pass with a baseline: a test's own, and those of other tests."""
    planned = item.config.stash.get(_JOINT, {})
    joint = planned.get((baseline, selection_of(item).chunks), ())
    return joint if set(rungs) <= set(joint) else rungs


def _measured_rungs(item: pytest.Item, rungs: dict[str, ModelRef]) -> tuple[ModelRef, ...]:
    """The quantizations that a test measures: the one of its parameter, or all."""
    params = item.callspec.params if hasattr(item, "callspec") else {}
    names = [params.get(key) for key in ("quant", "kv_type")]
    own = [ref for name, ref in rungs.items() if name in names]
    takes_all = "ladder" in getattr(item, "fixturenames", ())
    return tuple(rungs.values() if takes_all or not own else own)


def parametrize_ladder(metafunc: pytest.Metafunc) -> None:
    """Run a test once for each quantization of its sweep, unless it uses the whole sweep.

    A marker that cannot be read leaves the test unchanged: its own set-up raises the error, while
    an error here would stop the whole session.
    """
    if not {"quant", "kv_type"} & set(metafunc.fixturenames):
        return
    try:
        marks = read_marks(metafunc.definition)
    except ConfigError:
        return
    if marks.ladder is not None and "quant" in metafunc.fixturenames:
        levels = marks.ladder.levels
        metafunc.parametrize("quant", levels, indirect=True, ids=levels)
    if marks.kv_ladder is not None and "kv_type" in metafunc.fixturenames:
        types = tuple(marks.kv_ladder.types)
        metafunc.parametrize("kv_type", types, indirect=True, ids=types)


def check_item(item: pytest.Item) -> None:
    """Reject bad markers, and markers without effect; skip a test for other hardware."""
    marks = marks_of(item)
    names = set(getattr(item, "fixturenames", ()))
    if marks.ladder is not None and marks.kv_ladder is not None:
        raise ConfigError(
            f"{item.nodeid}: both a quant_ladder and a kv_ladder marker",
            why="if weights and cache both change, no difference is due to one of them",
            remedy="keep one; with kv_ladder, a quant marker names the weights",
        )
    for name, mark, fixture in (
        ("quant_ladder", marks.ladder, "quant"),
        ("kv_ladder", marks.kv_ladder, "kv_type"),
    ):
        if mark is not None and not names & {fixture, "ladder"}:
            raise ConfigError(
                f"{item.nodeid}: a {name} marker on a test that uses none of its fixtures",
                why="the test would run once and measure none of the quantizations",
                remedy=f"use the perplexity, throughput, model, {fixture} or ladder fixture",
            )
    if marks.speculative is not None and not {"speculation", "gate"} & names:
        raise ConfigError(
            f"{item.nodeid}: a speculative marker on a test without its fixture",
            why="the test would measure no speculation",
            remedy='use the speculation fixture, or gate for gate("sd")',
        )
    if marks.hardware is not None and (reason := session_of(item.config).unmet(marks.hardware)):
        skip("test", reason)
