from collections.abc import Callable
from pathlib import Path

import pytest

from pytest_asperf.audit.result import Audit
from tests.power_samples import sample


def test_energy_is_added_up_over_samples_of_unequal_length(
    audit_of: Callable[..., Audit],
) -> None:
    """A short sample of much power does not weigh as much as a long one of little."""
    text = b"\0".join([sample(100, 40_000), sample(1900, 2000), b""])
    (found,) = audit_of({"power": text}).files
    figures = {figure.name: figure for figure in found.figures}
    gpu = figures["GPU energy"]
    assert gpu.value is not None
    assert gpu.value.point == pytest.approx(7.8)
    assert gpu.text == "3.9 W over 2 s, 2 to 40 W by sample (n = 2)"
    assert "ANE reads 0 J throughout: idle, or a counter that is dead" in found.notes
    assert found.guard_findings == []


@pytest.mark.parametrize(
    "broken",
    [
        b'<?xml version="1.0" encoding="UTF-99"?><plist><dict></dict></plist>',
        b'<?xml version="1.0" encoding="UTF-8"?><plist></dict></plist>',
        b'<?xml version="1.0" encoding="UTF-8"?><plist><key>a</key></plist>',
        b'<?xml version="1.0" encoding="UTF-8"?><plist><array/></plist>',
    ],
    ids=["unknown encoding", "dict never opened", "key outside of a dict", "array"],
)
def test_a_plist_that_its_reader_fails_on_loses_no_other_file(
    broken: bytes, audit_of: Callable[..., Audit]
) -> None:
    """The file is reported as unreadable, by itself, and as a sample that counts as broken."""
    whole = sample(100, 2000)
    alone, mixed, sound = audit_of({"a": broken, "b": whole + b"\0" + broken, "c": whole}).files
    assert "no sample of powermetrics" in alone.problem
    assert "1 samples are cut off or broken and were skipped" in mixed.notes
    assert sound.figures


@pytest.mark.parametrize(
    ("pressures", "guards"),
    [
        (["Nominal", "Nominal"], []),
        (["Moderate", "Nominal"], []),
        (["Nominal", "Moderate"], ["throttled"]),
        (["Heavy", "Heavy"], ["throttled"]),
        (["Heavy", "Nominal", "Heavy"], ["throttled"]),
    ],
)
def test_thermal_pressure_that_rises_or_stays_is_throttling(
    pressures: list[str], guards: list[str], audit_of: Callable[..., Audit]
) -> None:
    """A machine that cools down is not throttled; one that heats up is."""
    text = b"\0".join(sample(1000, 5000, 10, pressure) for pressure in pressures)
    (found,) = audit_of({"power": text}).files
    assert [guard_finding.guard for _, guard_finding in found.guard_findings] == guards


@pytest.mark.parametrize("pressures", [["Nominal", "Glowing"], ["Nominal", ""], [""]])
def test_thermal_pressure_of_another_word_is_unknown(
    pressures: list[str], audit_of: Callable[..., Audit]
) -> None:
    """Samples with a known word do not speak for the others."""
    text = b"\0".join(sample(1000, 5000, 10, pressure) for pressure in pressures)
    (found,) = audit_of({"power": text}).files
    assert "thermal pressure is not in all samples, so it is unknown" in found.notes


def test_a_sample_that_is_cut_off_is_left_out_and_said(audit_of: Callable[..., Audit]) -> None:
    """The last sample of a powermetrics that was killed is not one."""
    text = sample(1000, 5000, 10) + b"\0" + sample(1000, 5000)[:300]
    (found,) = audit_of({"power": text}).files
    assert "1 samples are cut off or broken and were skipped" in found.notes
    assert found.problem == ""


def test_an_entity_bomb_is_not_expanded(audit_of: Callable[..., Audit]) -> None:
    """A plist that declares entities is rejected before they grow."""
    lines = ["<!DOCTYPE plist [", '<!ENTITY a "aaaaaaaaaa">']
    lines += [
        f'<!ENTITY {b} "{f"&{a};" * 10}">' for a, b in zip("abcdefgh", "bcdefghi", strict=True)
    ]
    bomb = '<?xml version="1.0"?>' + "".join(lines) + "]><plist><string>&i;</string></plist>"
    (found,) = audit_of({"power": bomb}).files
    assert "no sample of powermetrics" in found.problem


def test_mlx_benchmark_is_read_by_trial(
    recorded: Callable[[str], str], audit_of: Callable[..., Audit]
) -> None:
    """Rates of mlx_lm.benchmark are those of n - 1 steps, over the trials and not their average."""
    (found,) = audit_of({"mlx": recorded("mlx_benchmark.txt")}).files
    figures = {figure.name: figure.value for figure in found.figures}
    assert set(figures) == {"tg32", "pp64"}
    generation = figures["tg32"]
    assert generation is not None
    assert generation.n == 5
    assert generation.point == pytest.approx(65.475 * 31 / 32)
    assert found.guard_findings == []


def test_a_benchmark_that_broke_off_is_said_to_have(
    recorded: Callable[[str], str], audit_of: Callable[..., Audit]
) -> None:
    """Trials without the averages after them are of a benchmark that did not end."""
    text = recorded("mlx_benchmark.txt").partition("Averages")[0]
    (found,) = audit_of({"mlx": text}).files
    assert "the benchmark did not finish: it printed no averages" in found.notes


def test_mlx_generate_is_one_run(
    recorded: Callable[[str], str], audit_of: Callable[..., Audit]
) -> None:
    """One text has a rate and no interval."""
    (found,) = audit_of({"mlx": recorded("mlx_generate.txt")}).files
    value = next(figure.value for figure in found.figures if figure.name == "tg24")
    assert value is not None
    assert not value.has_interval


_MACMON = b'{"timestamp": "2026-01-01T00:00:00Z", "cpu_power": 1.5, "all_power": 10.5}'
_MLX = b'[{"device_name": "Apple M4", "max_recommended_working_set_size": 12}, {"memory_size": 9}]'
_POWER = Path(__file__).parents[2] / "fixtures" / "powermetrics"


@pytest.mark.parametrize(
    ("content", "name"),
    [
        (_MACMON, "macmon's JSON"),
        (b"\n".join([_MACMON] * 3), "macmon's JSON"),
        (_MLX, "MLX's device information"),
        ((_POWER / "m4pro_battery.plist").read_bytes(), "its samplers measure no power"),
    ],
    ids=["macmon", "macmon by line", "mlx", "battery"],
)
def test_what_holds_no_energy_is_refused_by_its_name(
    content: bytes, name: str, audit_of: Callable[..., Audit]
) -> None:
    """Powers without an interval, facts of a device, and samplers that measure no power."""
    (found,) = audit_of({"m": content}).files
    assert name in found.problem
    assert found.figures == []


def test_the_gpu_s_sampler_alone_has_one_rail(audit_of: Callable[..., Audit]) -> None:
    """Two samples of an M4 Pro are 126 mJ of the GPU in 4 s, and nothing else."""
    (found,) = audit_of({"m": (_POWER / "m4pro_gpu.plist").read_bytes()}).files
    (gpu,) = found.figures
    assert str(gpu) == "0.1260 J, 0.0315 W over 4.004 s, 0.021 to 0.042 W by sample (n = 2)"
