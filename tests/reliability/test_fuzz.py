"""Mutated input of every kind is read, or rejected in asperf's words; nothing else.

The ordinary tests have 2,000 fixed inputs. `tox run -e campaign` sets ASPERF_TEST_INPUTS to more,
whose counts are in docs/reliability.md.
"""

import json
import os
import random
import signal
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

import pytest

import pytest_asperf
from pytest_asperf.audit.known import Options
from pytest_asperf.audit.read import DEFECT
from pytest_asperf.audit.together import audit, sections
from pytest_asperf.config import markers as marks
from pytest_asperf.config.catalogue import load_catalogue
from pytest_asperf.config.engines import parse_level
from pytest_asperf.errors import AsperfError
from pytest_asperf.hardware.profiles import find_profile, parse_profiles
from pytest_asperf.measure.feeding import read_prompts
from pytest_asperf.modelfiles.gguf_read import inspect_gguf
from pytest_asperf.modelfiles.hub_cache import shipped_models, shipped_prompts
from pytest_asperf.modelfiles.safetensors_read import list_tensors, read_safetensors
from tests.conftest import Draft

_N_INPUTS: Final = int(os.environ.get("ASPERF_TEST_INPUTS", "2000"))
_SEED: Final = 20261122
#: No input may last longer, even on a busy machine.
_DEADLINE_S: Final = 20
#: No message may be longer, for any repeated text.
_LONGEST: Final = 60_000
_PACKAGE: Final = Path(pytest_asperf.__file__).parent
_LOGS: Final = Path(__file__).parents[2] / "fixtures" / "audit"

#: Values instead of the expected ones.
_HOSTILE: Final = (
    *(b"\0", b"\xff\xfe", b"\xef\xbb\xbf", b"\x1b[2J", b"\r", b"\n\n", b'"', b"'''", b"\\", b"["),
    *(
        b"]",
        b"{",
        b"}",
        b"[[",
        b"=",
        b",",
        b"nan",
        b"-inf",
        b"1e999",
        b"-1",
        b"0",
        b"null",
        b"true",
    ),
    *(b"9" * 5000, b"0x" + b"f" * 5000, b"1e-400", b"\xed\xa0\x80", "\u202e".encode()),
    *(b"\xff" * 8, b"\0" * 8, (2**63).to_bytes(8, "little"), (2**31).to_bytes(4, "little")),
    b"1979-05-27T07:32:00Z",
)


def mutated(chance: random.Random, data: bytes, *, head: int | None = None) -> bytes:
    """Return the data with one to six changes, within its first `head` bytes."""
    found = bytearray(data)
    for _ in range(chance.randint(1, 6)):
        most = min(len(found), head or len(found))
        at, size = chance.randrange(most + 1), chance.choice((1, 1, 2, 4, 8, 40))
        match chance.randrange(7):
            case 0 if at < len(found):
                found[at] ^= 1 << chance.randrange(8)
            case 1:
                found[at : at + size] = chance.randbytes(size)
            case 2:
                found[at:at] = chance.choice(_HOSTILE)
            case 3:
                found[at : at + size] = chance.choice(_HOSTILE)
            case 4:
                del found[at : at + size]
            case 5:
                begin = chance.randrange(most + 1)
                found[at:at] = found[begin : begin + 10 * size]
            case _:
                if chance.random() < 0.1:
                    del found[at:]
    return bytes(found)


class Hostile:
    """An argument that raises on every use."""

    def __repr__(self) -> str:
        raise RuntimeError("no repr")

    def __eq__(self, _other: object) -> bool:
        raise RuntimeError("not comparable")

    __hash__ = None  # type: ignore[assignment]  # cannot be a key


@dataclass(frozen=True)
class Ground:
    """The folders of inputs, and of results.

    Attributes:
        chance: the source of all choices.
        folder: an empty folder.
        gguf: a sound GGUF file.
        safetensors: a sound safetensors file.
    """

    chance: random.Random
    folder: Path
    gguf: bytes
    safetensors: bytes

    def file(self, name: str, content: bytes) -> Path:
        """Write a file of this name."""
        path = self.folder / name
        path.write_bytes(content)
        return path


def _gguf(ground: Ground) -> None:
    head = ground.chance.choice((64, 600, 30_000))
    inspect_gguf(ground.file("m.gguf", mutated(ground.chance, ground.gguf, head=head)))


def _safetensors(ground: Ground) -> None:
    path = ground.file("m.safetensors", mutated(ground.chance, ground.safetensors, head=400))
    list_tensors(path)
    for tensor in read_safetensors(path).values():
        tensor.as_float32().sum()


_CONFIG: Final = b"""
engine = "llama_cpp"
default_model = "mine:Q4_K_M"
hardware = "m2ultra"
chunks = 40
repetitions = 5
max_seconds = 300
call_timeout_s = 600
tolerance = "5%"
max_cv = 0.2
seed = 7
cache = "cache"
report = ["json:out.json"]
findings = ["mine.toml"]
[models.mine]
files = { F16 = "f16.gguf", Q4_K_M = "q4.gguf" }
corpus = "corpus.txt"
settings = { n_gpu_layers = 99, threads = 4, flash_attn = "auto", type_k = "q8_0" }
[models.other]
hf = "hub/other"
engine = "mlx"
settings.mlx = { kv_bits = 8 }
[builds.old]
requirements = ["llama-cpp-python==0.3.35"]
env = { CMAKE_ARGS = "-DGGML_NATIVE=ON" }
[builds.new]
checkout = "../llama.cpp"
commit = "b9000"
"""


def _configuration(ground: Ground) -> None:
    ground.file("asperf.toml", mutated(ground.chance, _CONFIG))
    catalogue = load_catalogue(ground.folder, shipped_models())
    catalogue.find(catalogue.settings.default_model, where="test")


def _value(chance: random.Random, depth: int = 0) -> Any:
    values = (
        *(None, True, -1, 0, 2, 64, 10**400, 10**5000, -(10**400), 0.0, 0.5, float("nan")),
        *(float("inf"), "", "Q4_K_M", "f16", "q8_0", "8bit", "m2ultra", "asperf-draft:Q8_0"),
        *("a:b:c", "x" * 100_000, "\0", "\ud800", "\x1b[2J", b"Q8_0", Hostile(), Hostile, int),
    )
    if depth < 2 and chance.random() < 0.2:
        inner = [_value(chance, depth + 1) for _ in range(chance.randrange(3))]
        return chance.choice((inner, tuple(inner), dict(enumerate(inner))))
    return chance.choice(values)


_KEYWORDS: Final = (
    *("name", "engine", "baseline", "chunks", "draft", "target", "k", "temperature"),
    *("n_tokens", "rollback", "prompts", "min_memory_gb", "min_cpu_cores", "threads"),
    *("n_gpu_layers", "type_k", "type_v", "kv_bits", "flash_attn", "slow_by", "nonsense"),
)


def _marker(ground: Ground) -> None:
    chance = ground.chance
    parse: Callable[..., object] = chance.choice(
        (
            *(marks.parse_model, marks.parse_quant, marks.parse_ladder, marks.parse_kv_ladder),
            *(marks.parse_hardware, marks.parse_speculative),
        )
    )
    args = tuple(_value(chance) for _ in range(chance.randrange(3)))
    keys = chance.sample(_KEYWORDS, chance.randrange(4))
    mark = parse(args, {key: _value(chance) for key in keys}, where="test_it")
    # Quantizations are rejected once the engine is known.
    levels: tuple[str, ...] = ()
    if isinstance(mark, marks.QuantMark):
        levels = (mark.level,)
    elif isinstance(mark, marks.LadderMark):
        levels = (mark.baseline, *(rung.rpartition(":")[2] for rung in mark.levels))
    for level in levels:
        parse_level(level, where="test_it")


_PROMPTS: Final = json.dumps(
    {
        category: texts[:2]
        for category, texts in json.loads(shipped_prompts().read_text("utf-8")).items()
    }
).encode()


def _prompts(ground: Ground) -> None:
    read_prompts(ground.file("prompts.json", mutated(ground.chance, _PROMPTS)))


_CHIPS: Final = (_PACKAGE / "data" / "hardware.toml").read_bytes().split(b"[[chip]]")


def _hardware(ground: Ground) -> None:
    """A table of chips, and a name with a memory size as an option overrides them."""
    chance = ground.chance
    if chance.random() < 0.3:
        names = (b"m2ultra", b"Apple M3 Max 40", b"rtx4090", b"apple-m4-pro-20")
        name = mutated(chance, chance.choice(names)).decode(errors="replace")
        find_profile(name, memory_gb=chance.choice((None, 0, -1, 16, 96, 10**400)))
        return
    head, *chips = _CHIPS
    text = head + b"[[chip]]" + mutated(chance, chance.choice(chips))
    parse_profiles(text.decode(errors="replace"), "hardware.toml")


_RECORDED_LOGS: Final = tuple(path.read_bytes()[:20_000] for path in sorted(_LOGS.iterdir()))
_PLIST: Final = b"""<?xml version="1.0" encoding="UTF-8"?>
<plist version="1.0"><dict>
<key>elapsed_ns</key><integer>1000000000</integer><key>hw_model</key><string>Mac16,5</string>
<key>processor</key><dict><key>cpu_energy</key><integer>900</integer>
<key>gpu_energy</key><integer>2000</integer><key>ane_energy</key><integer>0</integer></dict>
<key>thermal_pressure</key><string>Nominal</string></dict></plist>
\0"""


def _log(ground: Ground) -> None:
    chance = ground.chance
    sources = (*_RECORDED_LOGS, 3 * _PLIST)
    files = [
        ground.file(f"{n}.txt", mutated(chance, chance.choice(sources)))
        for n in range(chance.randint(1, 2))
    ]
    found = audit(files, Options())
    problems = [file.problem for file in found.files]
    assert not [problem for problem in problems if problem.startswith(DEFECT)], problems
    assert "\x1b" not in str(sections(found))
    json.dumps(found.as_dict(), allow_nan=False)


#: By kind: its reader, and its share of all inputs.
KINDS: Final[dict[str, tuple[Callable[[Ground], None], float]]] = {
    "gguf": (_gguf, 0.15),
    "safetensors": (_safetensors, 0.1),
    "configuration": (_configuration, 0.15),
    "marker": (_marker, 0.2),
    "prompts": (_prompts, 0.1),
    "hardware": (_hardware, 0.1),
    "log": (_log, 0.1),
}


@contextmanager
def _deadline() -> Iterator[None]:
    def late(*_: object) -> None:
        raise TimeoutError("an input took too long")

    before = signal.signal(signal.SIGALRM, late)
    signal.alarm(_DEADLINE_S)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


@pytest.fixture
def ground(draft: Draft, tmp_path: Path) -> Ground:
    """The sound files, and a folder."""
    (spec,) = (spec for spec in shipped_models() if spec.name == "asperf-draft")
    assert spec.hf_folder is not None
    weights = (spec.hf_folder / "model.safetensors").read_bytes()
    return Ground(random.Random(_SEED), tmp_path, draft("F16").read_bytes(), weights)


@pytest.mark.parametrize("kind", KINDS)
def test_mutated_input_is_read_or_refused(
    ground: Ground, kind: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Each input ends in a value or in an error of ours, within the deadline."""
    require_read_or_refused(ground, kind, *KINDS[kind], capsys)


def require_read_or_refused(
    ground: Ground,
    kind: str,
    read: Callable[[Ground], None],
    share: float,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Check that each input of a kind ends so; a campaign prints their counts."""
    outcomes: Counter[str] = Counter()
    broken: list[str] = []
    slowest_s = 0.0
    for number in range(round(_N_INPUTS * share)):
        began = time.monotonic()
        outcome = _outcome(read, replace(ground, chance=random.Random(f"{_SEED} {kind} {number}")))
        slowest_s = max(slowest_s, time.monotonic() - began)
        outcomes[outcome] += 1
        if outcome not in {"read", "refused"}:
            broken.append(f"{number}: {outcome}")
    if "ASPERF_TEST_INPUTS" in os.environ:
        with capsys.disabled():
            print(
                f"\n{kind}: {outcomes.total()} inputs, {dict(outcomes)}, slowest {slowest_s:.2f} s"
            )
    assert not broken[:20]


@pytest.mark.parametrize("kind", sorted(KINDS.keys() - {"marker"}))
def test_input_as_it_was_is_read(
    ground: Ground, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The mutated input is sound: the mutation is rejected, and not its ground."""
    read, _ = KINDS[kind]
    require_sound(ground, read, monkeypatch)


def require_sound(
    ground: Ground, read: Callable[[Ground], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Check that a kind's input is read if nothing in it is changed."""
    monkeypatch.setitem(globals(), "mutated", lambda _chance, data, **_: data)
    outcomes = [_outcome(read, replace(ground, chance=random.Random(seed))) for seed in range(8)]
    assert "read" in outcomes


def _outcome(read: Callable[[Ground], None], ground: Ground) -> str:
    try:
        with _deadline():
            read(ground)
    except AsperfError as error:
        return "refused" if len(str(error)) < _LONGEST else f"{len(str(error))} characters"
    except Exception as error:  # noqa: BLE001  # each is what the test looks for
        *_, frame = traceback.extract_tb(error.__traceback__)
        return (
            f"{type(error).__name__} in {Path(frame.filename).name}:{frame.lineno}: {error!s:.80}"
        )
    return "read"
