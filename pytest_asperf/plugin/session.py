"""One pytest session's state: settings, hardware, the lab, and what was noted; all made late."""

from __future__ import annotations

import os
import secrets
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING

from pytest_asperf.config.build_sources import ToolsFolder
from pytest_asperf.config.catalogue import Catalogue, at_level, load_catalogue
from pytest_asperf.config.engine_settings import EngineSettings
from pytest_asperf.config.engines import parse_level
from pytest_asperf.config.settings import parse_path, split_address
from pytest_asperf.config.spec import NGRAM_DRAFT, ModelRef, Pairing
from pytest_asperf.errors import AsperfError, CacheError, ConfigError, HardwareError, printable
from pytest_asperf.hardware.detect import detect
from pytest_asperf.hardware.in_force import Ceiling, Hardware, in_force
from pytest_asperf.hardware.machine_lock import machine_lock_path, machine_turn
from pytest_asperf.modelfiles.cache import cache_root
from pytest_asperf.modelfiles.shipped import shipped_corpus, shipped_models
from pytest_asperf.plugin.parsing import parse_settings, read_marks
from pytest_asperf.plugin.progress import TerminalNotify
from pytest_asperf.report.speculation_picture import require_matplotlib

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    import pytest

    from pytest_asperf.config.engines import Engine
    from pytest_asperf.config.markers import HardwareMark, Marks, SpeculativeMark
    from pytest_asperf.config.spec import Build
    from pytest_asperf.hardware.machine import Bandwidth
    from pytest_asperf.measure.ab_speed import Budget
    from pytest_asperf.measure.results import ThroughputResult
    from pytest_asperf.measure.runner import MeasurementRunner
    from pytest_asperf.published.findings import Finding, Findings


class Session:
    """What a session's tests share. Nothing is detected, loaded or written before it is asked for.

    Args:
        config: pytest's configuration.

    Attributes:
        notify: where progress goes.
        written: at the end of the session, the files of reports.
        unwritten: at the end of the session, the reports that could not be written, and why.

    Raises:
        ConfigError: an option or the configuration file is not usable.
    """

    def __init__(self, config: pytest.Config) -> None:
        self._runners: dict[Engine, MeasurementRunner] = {}
        self.notify = TerminalNotify(config)
        self.written: list[Path] = []
        self.unwritten: dict[Path, CacheError] = {}
        self._ladders: dict[tuple[ModelRef, int | None], tuple[ModelRef, ...]] = {}
        # Without a pytest configuration, `--pyargs` puts the root into site-packages.
        folder = config.rootpath if config.inipath else config.invocation_params.dir
        catalogue = load_catalogue(folder, shipped_models())
        self.settings = parse_settings(config, catalogue)
        self.catalogue: Catalogue = replace(catalogue, settings=self.settings)

    @cached_property
    def cache(self) -> Path:
        """The folder for files that are made once."""
        return self.settings.cache or cache_root(os.environ)

    @cached_property
    def hardware(self) -> Hardware:
        """The hardware that numbers are held against."""
        return in_force(self.settings.hardware, detect())

    @property
    def is_live(self) -> bool:
        """Whether this run measures; otherwise it goes by recorded numbers."""
        if self.settings.source == "auto":
            return self.hardware.is_this_machine
        return self.settings.source == "live"

    @cached_property
    def findings(self) -> Findings:
        """Published findings, the shipped ones and the project's own.

        Raises:
            ConfigError: a file of the project's is not usable.
        """
        from pytest_asperf.published.findings import load_findings  # noqa: PLC0415  # numpy, scipy

        return load_findings(self.settings.findings, self.settings.records)

    @property
    def _meant(self) -> Hardware:
        """The hardware that a marker or a finding is held against."""
        return self.hardware.measured_on if self.is_live else self.hardware

    def out_of_scope(self, finding: Finding) -> str:
        """Return why a finding says nothing of this run, or nothing."""
        hardware = self._meant
        profile = hardware.profile
        if not finding.suits(profile.id if profile else ""):
            about = " or ".join(finding.hardware)
            return f"the finding is about {about}, this is {hardware.name}"
        if self.is_live and finding.engine not in {"", self.settings.engine}:
            return f"the finding is about {finding.engine}, this is {self.settings.engine}"
        return ""

    def runner(self, engine: Engine) -> MeasurementRunner:
        """Return an engine's lab, opened when the first measurement asks for it.

        What the others have loaded is freed: it would take memory from what comes now.
        """
        for other, runner in self._runners.items():
            if other != engine:
                runner.close()
        if engine not in self._runners:
            self._runners[engine] = self._open_runner(engine)
        return self._runners[engine]

    def _open_runner(self, engine: Engine) -> MeasurementRunner:
        from pytest_asperf.engine_process import EngineBuild  # noqa: PLC0415  # with what it brings
        from pytest_asperf.measure.plan import MeasurementPlan  # noqa: PLC0415
        from pytest_asperf.measure.runner import MeasurementRunner  # noqa: PLC0415  # numpy, scipy, psutil

        settings = self.settings
        return MeasurementRunner(
            EngineBuild(engine, settings.python, self._tools if engine == "llama_tools" else None),
            cache=self.cache,
            corpus=shipped_corpus(),
            plan=MeasurementPlan(
                repetitions=settings.repetitions,
                chunks=settings.chunks,
                seed=self.seed,
                call_timeout_s=settings.call_timeout_s,
                wait_s=settings.wait,
                self_check_every=settings.self_check,
            ),
            lock_path=machine_lock_path(),
            notify=self.notify,
        )

    @cached_property
    def builds(self) -> tuple[Build, Build] | None:
        """Baseline and candidate of a gate, None where no candidate was named."""
        settings = self.settings
        if settings.candidate is None:
            return None
        find = self.catalogue.find_build
        return (
            find(settings.baseline, where="--asperf-baseline"),
            find(settings.candidate, where="--asperf-candidate"),
        )

    @property
    def _tools(self) -> Path | None:
        """The folder of programs: what only a gate's baseline names is what makes its models."""
        if self.settings.tools is None and self.builds is not None:
            source = self.builds[0].source
            return source.folder if isinstance(source, ToolsFolder) else None
        return self.settings.tools

    @cached_property
    def seed(self) -> int:
        """The seed of every random order: the one given, or one drawn and logged."""
        given = self.settings.seed
        return secrets.randbelow(2**31) if given is None else given

    @property
    def gate_budget(self) -> Budget:
        """What a gate may cost."""
        from pytest_asperf.measure.ab_speed import Budget  # noqa: PLC0415  # with what it brings

        settings = self.settings
        return Budget(settings.tolerance, settings.max_pairs, settings.max_seconds, self.seed)

    def check(self) -> None:
        """Refuse what would be missed only once everything was measured.

        Raises:
            ConfigError: a build or a finding is not usable, or pictures cannot be drawn.
            BuildError: what a build would be made from is not there.
            HardwareError: the option or the configuration file names no profile.
        """
        self.hardware  # noqa: B018  # made, and checked, by being asked for
        if self.builds is not None:
            from pytest_asperf.builds.build_cache import require_source  # noqa: PLC0415  # gates only

            for build in self.builds:
                require_source(build, cache=self.cache)
        if any(target.format == "plots" for target in self.settings.report):
            require_matplotlib()
        if self.settings.findings or self.settings.records:
            self.findings  # noqa: B018  # as above

    def close(self) -> None:
        """End what was started."""
        for runner in self._runners.values():
            runner.close()

    def model_of(
        self, node: pytest.Item, marks: Marks, level: str | None, kv_type: str | None = None
    ) -> ModelRef:
        """Return the model a test measures: its markers', or the default one.

        Args:
            node: the test.
            marks: its markers.
            level: the level of a ladder's rung, where the test is one, or another model's address.
            kv_type: the KV cache of a ladder's rung, likewise.

        Raises:
            ConfigError: an unknown model or level.
        """
        engine = marks.model.engine if marks.model else None
        ref = self._find(self.address_of(marks), node, marks, engine)
        if marks.ladder is not None:
            for rung in (*marks.ladder.levels, marks.ladder.baseline):
                if ":" not in rung:
                    parse_level(rung, where=node.nodeid, engine=ref.spec.engine)
        level = level or (marks.quant.level if marks.quant else None)
        if level is not None and ":" in level:
            ref = self._find(level, node, marks, ref.spec.engine)
        elif level is not None:
            ref = at_level(ref, level, where=node.nodeid)
        if kv_type is not None and marks.kv_ladder is not None:
            ref = ref.with_kv(marks.kv_ladder.types[kv_type])
        return ref

    def baseline_of(self, node: pytest.Item, marks: Marks, ref: ModelRef) -> ModelRef:
        """Return what a test's model is compared with.

        One thing differs: the level of the weights, where it is not the baseline's, or else the
        type of the KV cache.

        Raises:
            ConfigError: the model is that itself.
        """
        baseline = marks.ladder.baseline if marks.ladder else "F16"
        if marks.ladder is not None:  # whose rungs may be of other models
            return replace(self.model_of(node, marks, None), level=baseline)
        if marks.kv_ladder is None and ref.level not in {None, baseline}:
            return replace(ref, level=baseline)
        plain = ref.with_kv(EngineSettings())
        if plain == ref:
            raise ConfigError(
                f"{node.nodeid}: {ref.label} has no level to compare with {baseline}, and no KV "
                "cache to compare with F16",
                why="ΔPPL and KLD compare two levels of the weights, or two types of the cache",
                remedy='mark the test with quant("Q6_K"), quant_ladder("Q8_0", "Q6_K") or '
                'kv_ladder("q8_0")',
            )
        return plain

    def ladder_of(self, node: pytest.Item, marks: Marks) -> dict[str, ModelRef]:
        """Return the rungs of a test's ladder by name; none where it has no ladder.

        Raises:
            ConfigError: an unknown model or level, or two rungs that are called the same.
        """
        levels = marks.ladder.levels if marks.ladder else ()
        types = marks.kv_ladder.types if marks.kv_ladder else ()
        rungs = {level: self.model_of(node, marks, level) for level in levels}
        refs = tuple(rungs.values())
        bases = (self.baseline_of(node, marks, ref) for ref in refs[:1])
        labels = [ref.label for ref in (*refs, *bases)]
        if repeated := [label for label in labels if labels.count(label) > 1]:
            raise ConfigError(
                f"{node.nodeid}: {repeated[0]} stands twice in the ladder, the baseline included",
                why="a level compared with itself shows nothing",
                remedy="name each once; give one of two models of the same name another",
            )
        return rungs | {name: self.model_of(node, marks, None, name) for name in types}

    def pairing_of(self, mark: SpeculativeMark, *, where: str) -> Pairing:
        """Return the draft and the target that a marker names.

        Raises:
            ConfigError: an unknown model or level.
        """
        folder = self.catalogue.folder
        target = self.catalogue.find(mark.target, where=where)
        return Pairing(
            target,
            self.draft_of(target, mark.draft, where=where),
            k=mark.k,
            temperature=mark.temperature,
            n_tokens=mark.n_tokens,
            rollback=mark.rollback,
            prompts=None if mark.prompts is None else parse_path(mark.prompts, folder),
        )

    def draft_of(self, target: ModelRef, address: str, *, where: str) -> ModelRef | None:
        """Return a target's draft, None for lookup: both are in one process, of one engine.

        Raises:
            ConfigError: an unknown model or level.
        """
        if address == NGRAM_DRAFT:
            return None
        return self.catalogue.find(address, where=where, engine=target.spec.engine)

    def address_of(self, marks: Marks) -> str:
        """Return the address of the model that a test measures."""
        return marks.model.address if marks.model else self.settings.default_model

    def model_on(
        self, engine: Engine, node: pytest.Item, marks: Marks, level: str | None
    ) -> ModelRef:
        """Return the model a test measures on an engine, at one of that engine's levels.

        Raises:
            ConfigError: an unknown model or level.
        """
        name, _ = split_address(self.address_of(marks))
        ref = self._find(name, node, marks, engine)
        return ref if level is None else at_level(ref, level, where=node.nodeid)

    def _find(
        self, address: str, node: pytest.Item, marks: Marks, engine: Engine | None
    ) -> ModelRef:
        ref = self.catalogue.find(address, where=node.nodeid, engine=engine)
        if marks.model is None:
            return ref
        return ModelRef(ref.spec.with_settings(marks.model.settings), ref.level)

    def name_models(self, items: Iterable[pytest.Item]) -> None:
        """Give models that tests name by paths names that tell them apart."""
        addresses = {self.settings.default_model}
        for item in items:
            try:
                addresses |= read_marks(item).addresses
            except ConfigError:  # told by the test's own set-up
                continue
        self.catalogue = self.catalogue.telling_apart(addresses)

    def plan_ladders(self, items: Iterable[pytest.Item]) -> None:
        """Join the ladders of all tests that share a model and a baseline, so each is one pass."""
        for item in items:
            if not any(map(item.get_closest_marker, ("quant_ladder", "kv_ladder"))):
                continue
            try:
                marks = read_marks(item)
                rungs = _measured_by(item, self.ladder_of(item, marks))
                base = self.baseline_of(item, marks, rungs[0])
            except Exception:  # noqa: BLE001, S112  # told by the test's own set-up
                continue
            key = (base, at_most(marks))
            self._ladders[key] = tuple(dict.fromkeys((*self._ladders.get(key, ()), *rungs)))

    def joint_rungs(
        self, base: ModelRef, wanted: tuple[ModelRef, ...], marks: Marks
    ) -> tuple[ModelRef, ...]:
        """Return what to score in one pass with a baseline so that these are among it."""
        joint = self._ladders.get((base, at_most(marks)), ())
        return joint if set(wanted) <= set(joint) else wanted

    def ceiling(self, result: ThroughputResult) -> Ceiling:
        """Return what bounds a TG measurement: the memory that its weights were read from.

        Raises:
            HardwareError: its bandwidth is not known.
        """
        hardware = self.hardware
        on_card, cache_bytes = self._read_from(result)
        published = hardware.published_bandwidth
        if published is not None and (hardware.shares_memory or on_card):
            kind = published.kind if hardware.is_this_machine else f"{published.kind}, declared"
            return Ceiling(published.gbs, kind, cache_bytes, self._doubt)
        if on_card or not hardware.is_this_machine:
            raise HardwareError(
                f"the memory bandwidth of {hardware.headline()} is not known",
                why="utilisation is a share of it",
                remedy="name the chip with --asperf-hardware; asperf doctor says what is missing",
            )
        measured = self._measured_bandwidth(remeasure=False)
        used_gbs = (result.bytes_per_token or 0) * result.rate.point / 1e9
        if used_gbs > measured.gbs:
            # A machine that was busy while its bandwidth was measured has a ceiling too low.
            measured = self._measured_bandwidth(remeasure=True)
        return Ceiling(measured.gbs, measured.kind, cache_bytes)

    @property
    def _doubt(self) -> str:
        """Why no claim can rest on the declared hardware's figures, or nothing."""
        found = self.hardware.contradiction
        return f"declared {self.hardware.name}, and this machine is {found}" if found else ""

    def roof(self, result: ThroughputResult) -> Ceiling | None:
        """Return what no TG measurement can exceed, None where nothing is published of it."""
        published = self.hardware.published_bandwidth
        on_card, cache_bytes = self._read_from(result)
        if published is None or not (self.hardware.shares_memory or on_card):
            return None
        return Ceiling(published.peak_gbs, "theoretical", cache_bytes)

    def _read_from(self, result: ThroughputResult) -> tuple[bool, int]:
        """Return whether weights were read from a card's memory, and the cache in front of it."""
        on_card = bool(result.ran.loaded.layers_offloaded)
        return on_card, 0 if on_card else self.hardware.machine.cache_bytes or 0

    def _measured_bandwidth(self, *, remeasure: bool) -> Bandwidth:
        from pytest_asperf.hardware.bandwidth import machine_bandwidth  # noqa: PLC0415  # numpy

        machine = self.hardware.machine
        with machine_turn(machine_lock_path(), self.notify.wait, self.settings.wait):
            return machine_bandwidth(self.cache, machine, remeasure=remeasure)

    def unmet(self, mark: HardwareMark) -> str:
        """Return why the hardware is not what a marker asks for, or nothing."""
        hardware = self._meant
        wanted = [in_force(name, hardware.machine).profile for name in mark.names]
        if wanted and hardware.profile not in wanted:
            return f"needs {' or '.join(mark.names)}, this is {hardware.name}"
        limits = (
            ("GB of memory", mark.min_memory_gb, hardware.memory_gb),
            ("CPU cores", mark.min_cpu_cores, hardware.cpu_cores),
            ("GPU cores", mark.min_gpu_cores, hardware.gpu_cores),
        )
        for what, least, have in limits:
            if least is not None and (have is None or have < least):
                found = "an unknown number" if have is None else f"{have:.4g}"
                return f"needs {least:g} {what}, {hardware.name} has {found}"
        return ""

    def headline(self) -> list[str]:
        """Return the lines that say what this session measures with."""
        lines = [f"asperf: hardware {self.hardware.headline()}"]
        if not self.is_live:
            return [*lines, "asperf: recorded numbers, nothing is measured"]
        try:
            engine = self.runner(self.settings.engine).describe()
        except AsperfError as err:  # told in full by each test
            reason = printable(err.what)
            return [*lines, f"asperf: live, engine {self.settings.engine} unavailable: {reason}"]
        return [*lines, f"asperf: live, engine {engine.release}, cache {self.cache}"]


def at_most(marks: Marks) -> int | None:
    """Return the chunks that a test's ladder is scored on at most, None for the session's."""
    ladder = marks.ladder or marks.kv_ladder
    return ladder.chunks if ladder else None


def _measured_by(item: pytest.Item, rungs: dict[str, ModelRef]) -> tuple[ModelRef, ...]:
    """Return the rungs that a test measures: its own, or all that the marker names."""
    params = item.callspec.params if hasattr(item, "callspec") else {}
    own = [name for key in ("quant", "kv_type") if (name := params.get(key)) in rungs]
    if own and "ladder" not in getattr(item, "fixturenames", ()):
        return tuple(rungs[name] for name in own)
    return tuple(rungs.values())
