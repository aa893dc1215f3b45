"""The `model` fixture: properties of a model that need no timing."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import ClassVar, Final

from pytest_asperf.analysis.limit_verdict import judge_limits
from pytest_asperf.analysis.results import Limits
from pytest_asperf.analysis.stats.estimate import (
    RATIO,
    SHARE,
    Estimate,
    counted_text,
    memory_text,
    number_text,
)
from pytest_asperf.analysis.verdict import Subject
from pytest_asperf.api.energy import EnergyFigure, measured_energy, require_device
from pytest_asperf.api.measurement_context import (
    FixtureValue,
    ModelUnderTest,
    require_kind,
    told_apart,
    unknown_word,
)
from pytest_asperf.api.quantity import Apart, Figure, Found, Judged, Quantity
from pytest_asperf.api.scored import TokenScores, score
from pytest_asperf.errors import ConfigError, shown
from pytest_asperf.gate.cells import GateCheck, parse_gated
from pytest_asperf.hardware.compute_plan import UNITS, Device, read_plan
from pytest_asperf.measure.ab_logits import Drift, DriftExperiment, LogitsExperiment
from pytest_asperf.modelfiles.disk_use import disk_use
from pytest_asperf.modelfiles.gguf_read import gguf_parts
from pytest_asperf.verdicts.gate import logit_ways
from pytest_asperf.verdicts.placement import ladder, placement_verdict

_GIB: Final = 2**30


@dataclass(frozen=True, eq=False, repr=False)
class FileSize(Figure):
    """The size of a variant's file, GiB, made if need be; no engine measures it."""

    variant: ModelUnderTest

    example: ClassVar = 'assert model.size <= "4 GiB"'

    def ratio_to(self, other: Quantity) -> Quantity:
        """The quantity of `self / other`."""
        if not isinstance(other, FileSize):
            return super().ratio_to(other)
        names, what = told_apart(self.variant, other.variant)
        ratio = Apart(f"{self.name} / {other.name}", RATIO, self.record, self, other, "/")

        def measure() -> Found:
            found = ratio.find()
            name = f"{' / '.join(names)} in size{what}"
            return replace(found, subject=replace(found.subject, name=name))

        return Figure(ratio.name, RATIO, self.record, measure)


def size_of(variant: ModelUnderTest) -> FileSize:
    """The size of a variant's file."""

    def measure() -> Found:
        located = variant.measurement.runner.locate(variant.ref)
        ran = (("file", f"{located.ref.title}, sha256 {located.sha256[:12]}"),)
        name = f"size of {located.ref.title}"
        subject = Subject(
            name, "live", ran, if_failed="name another quantization, or change the limit"
        )
        return Found(Estimate.exact(located.size_bytes / _GIB, "GiB"), subject)

    name = f"size of {variant.title}"
    return FileSize(name, "GiB", variant.measurement.record, measure, variant, about=variant.ref)


def disk_of(variant: ModelUnderTest, paths: Sequence[str | Path]) -> Figure:
    """The disk space of these files together, or of the model's own file if none is named."""
    own = " and ".join(str(path) for path in paths[:2]) or variant.title
    more = f" and {len(paths) - 2} more" if len(paths) > 2 else ""

    def measure() -> Found:
        found: Sequence[Path] = [Path(path) for path in paths]
        found = found or gguf_parts(variant.measurement.runner.locate(variant.ref).path)
        use = disk_use(found)
        ran = (
            ("files", counted_text(use.n_files, "files")),
            ("apparent size", memory_text(use.apparent)),
            ("counted once", f"{use.n_shared} further names of them"),
        )
        subject = Subject(
            f"disk use of {own}{more}",
            "live",
            ran,
            if_failed="remove quantizations or compiled forms that nothing uses, or allow more",
        )
        return Found(Estimate.exact(use.allocated / _GIB, "GiB"), subject)

    record, about = variant.measurement.record, variant.ref
    return Figure(f"disk use of {own}{more}", "GiB", record, measure, about=about)


@dataclass(frozen=True, eq=False, repr=False)
class OwnKld(Figure):
    """The mean KLD of a model's logits in one way from those in another, nats."""

    variant: ModelUnderTest
    ways: LogitsExperiment

    example: ClassVar = 'assert model.kld("logits@c4") <= "0.02 nats"'

    @property
    def largest(self) -> Figure:
        """The KLD of the position where it is largest, nats."""
        name = f"largest {self.name}"
        return Figure(
            name,
            "nats",
            self.record,
            lambda: _drift_found(self.variant, self.ways, lambda drift: drift.largest_kld, name),
            about=self.about,
        )


def own_kld(variant: ModelUnderTest, check: str) -> OwnKld:
    """The KLD of a model's logits in the two ways that a gate's check compares."""
    gated = parse_gated(check, where="model.kld")
    if not (isinstance(gated, GateCheck) and gated.kind == "logits"):
        raise ConfigError(
            f"model.kld: {shown(check, 80)} does not compare a model's logits with its own",
            why="a KLD is between two distributions of the same tokens",
            remedy="name logits, logits@d1024, logits@c4 or logits@turns; the KLD of a "
            'quantization from its baseline is ladder["Q8_0"].kld, that of two builds '
            'gate("kld")',
        )
    ways = LogitsExperiment(gated.depth, gated.users, gated.turns)
    name = f"KLD of {check} of {variant.title}"
    return OwnKld(
        name,
        "nats",
        variant.measurement.record,
        lambda: _drift_found(variant, ways, lambda drift: drift.mean_kld, name),
        variant,
        ways,
        about=variant.ref,
    )


def _drift_found(
    variant: ModelUnderTest, ways: LogitsExperiment, of: Callable[[Drift], float], name: str
) -> Found:
    drift = variant.measurement.runner.measure((variant.ref,), DriftExperiment(ways))
    compared, both, cause = logit_ways(drift)
    subject = Subject(
        name, "live", drift.ran.rows(), if_failed=f"{both} disagree: look for {cause}"
    )
    remark = f"{compared}; largest KLD {number_text(drift.largest_kld, 2)} nats at {drift.place}"
    return Found(Estimate.exact(of(drift), "nats"), subject, remarks=(remark,))


@dataclass(frozen=True)
class Model(FixtureValue):
    """The `model` fixture: the model that a test's markers name."""

    variant: ModelUnderTest

    example: ClassVar = 'assert_fits(model, "m2ultra")'
    needs_use: ClassVar = False

    def __repr__(self) -> str:
        return f"<Model {self.label}>"

    @property
    def name(self) -> str:
        """Its name, without the quantization."""
        return self.variant.ref.spec.name

    @property
    def quant(self) -> str | None:
        """Its quantization; None if the file is measured as it is."""
        return self.variant.ref.level

    @property
    def label(self) -> str:
        """Its spec."""
        return self.variant.ref.label

    @cached_property
    def path(self) -> Path:
        """Its file, made now if it is not in the cache yet."""
        return self.variant.measurement.runner.locate(self.variant.ref).path

    @property
    def size(self) -> FileSize:
        """The size of its file, GiB."""
        return size_of(self.variant)

    @property
    def disk(self) -> Figure:
        """The disk space of its file, GiB."""
        return disk_of(self.variant, ())

    def disk_of(self, *paths: str | Path) -> Figure:
        """The disk space of these files and folders together, GiB.

        A file of several names counts once: hard links, and the blobs that snapshots of a hub's
        cache share. Files that a file system clones silently, as APFS does, count in full.
        """
        return disk_of(self.variant, paths)

    def placement(
        self,
        device: Device,
        path: str | Path,
        *,
        units: str = "ALL",
        function: str | None = None,
        observed: EnergyFigure | None = None,
        unlike: EnergyFigure | None = None,
    ) -> PlannedShare:
        """The share of a Core ML model's estimated cost that its plan places on a device.

        The plan says which device is expected. With `observed` the comparison is about the run: in
        addition to the plan, the device's rail must draw energy and the GPU must be near idle.

        Args:
            device: `ANE`, `GPU` or `CPU`.
            path: a .mlpackage, .mlmodel or .mlmodelc.
            units: Core ML's compute units: `ALL`, `CPU_AND_NE`, `CPU_AND_GPU`, `CPU_ONLY`.
            function: of a model with several.
            observed: `energy("pp512")` of the program that runs the model.
            unlike: a GPU run of the same work, whose time per token must differ.

        Raises:
            ConfigError: no such device or units.
        """
        require_device(device)
        if units not in UNITS:
            raise unknown_word("units", units, UNITS)
        for given in (observed, unlike):
            if given is not None:
                require_kind(given, EnergyFigure, 'energy("pp512")')
        name, record = f"{Path(path).name} on {device}", self.variant.measurement.record
        plan = _Plan(Path(path), device, units, function)
        return PlannedShare(name, SHARE, record, plan.found, plan, observed, unlike)

    def kld(self, check: str = "logits") -> OwnKld:
        """The mean KLD of its logits in the two ways that a gate's check compares, nats.

        `logits`: a prompt in batches and token by token; `logits@d1024`, the same after a context;
        `logits@c4`, each of four sequences among them and alone; `logits@turns`, conversations that
        go on and their prompts anew. Healthy builds stay below 0.02 nats.

        Raises:
            ConfigError: it is no check of logits.
        """
        self.variant.measurement.require_live()
        return own_kld(self.variant, check)

    def scores(
        self,
        text: str | Sequence[int],
        *,
        after: int = 0,
        quant: str | None = None,
        **settings: object,
    ) -> TokenScores:
        """The NLL of each token of a text, given the text before it.

        With a quantization or settings, that variant is scored, and the KLD is from this model. The
        models stay loaded until the test ends.

        Args:
            text: a text, or token ids from an earlier call.
            after: the first token to score, by its position.
            quant: the quantization of the weights.
            settings: engine settings over the model's own, such as `n_ubatch=1`.

        Raises:
            ConfigError: a quantization, setting or text that is not usable.
            AsperfError: it cannot be measured.
        """
        return score(self.variant, text, after, quant, settings)


@dataclass(frozen=True, slots=True)
class _Plan:
    """The model and function that Core ML plans."""

    path: Path
    device: Device
    units: str
    function: str | None

    def found(self) -> Found:
        """The share that it places on the device.

        Raises:
            ModelError: no such model.
            ElsewhereError: this is no Mac; the test is skipped.
            HardwareError: Core ML made no plan.
        """
        plan = read_plan(self.path, units=self.units, function=self.function)
        subject = Subject(f"{self.path.name} is planned on {self.device}", "live")
        return Found(plan.share(self.device), subject, plan.guard_findings)


@dataclass(frozen=True, eq=False, repr=False)
class PlannedShare(Figure):
    """The share of a model's cost that a plan places on a device, and the evidence of its run."""

    plan: _Plan
    observed: EnergyFigure | None
    unlike: EnergyFigure | None

    example: ClassVar = 'assert model.placement("ANE", "m.mlpackage") >= "95%"'

    def judge(self, limits: Limits) -> Judged:
        """The verdict on every kind of evidence that there is."""
        __tracebackhide__ = True
        asked = self.plan
        plan = read_plan(asked.path, units=asked.units, function=asked.function)
        seen, other = (
            None if figure is None else measured_energy(figure.variant, figure.workload)
            for figure in (self.observed, self.unlike)
        )
        subject = Subject("", "live", if_failed="see the plan for other devices: asperf placement")
        planned = judge_limits(plan.share(asked.device), limits, subject)
        rungs = ladder(asked.device, planned, seen, other)
        return Judged(placement_verdict(asked.path.name, rungs, asked.device, plan, seen))
