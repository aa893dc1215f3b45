"""The log of each model that llama.cpp loads: size, layers, where the weights went."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import PurePosixPath, PureWindowsPath
from typing import Any, Final

from . import COUNT, NUMBER

_LOADED: Final = re.compile(
    rf"llama_model_loader: loaded meta data with \d+ key-value pairs and ({COUNT}) tensors "
    r"from (.+?) \(version"
)
_KEY: Final = re.compile(r"llama_model_loader: - kv +\d+: +([\w.]+) +\S+ += (.*)")
_INFO: Final = re.compile(r"(?:print_info|llm_load_print_meta): ([\w ]+?) += (.*)")
_SIZE: Final = re.compile(rf"({NUMBER}) ([KMGT]iB)(?: \(({NUMBER}) BPW\))?")
_OFFLOADED: Final = re.compile(
    r"(?:load_tensors|llm_load_tensors): offloaded (\d{1,6})/(\d{1,6}) layers"
)
_BUFFER: Final = re.compile(
    rf"(?:load_tensors|llm_load_tensors): +(\S+) model buffer size = +({NUMBER}) MiB"
)
_DEVICE: Final = re.compile(r"using device (\S+) \(([^()]*\w)")
_UNITS: Final = {"KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30, "TiB": 1 << 40}
_COUNTS: Final = {"n_embd": "n_embd", "n_vocab": "n_vocab", "n_expert": "n_experts"}
_MAX_MODELS: Final = 16
_MAX_DEVICES: Final = 32

#: Below this many layers, or groups of layers that repeat, the count of tensors shows nothing.
_LEAST_GROUPS: Final = 4


@dataclass(frozen=True, slots=True)
class ModelFacts:
    """One model as its loader described it; None if the log has no such line."""

    file: str
    name: str | None = None  #: `general.name`
    level: str | None = None
    size_bytes: float | None = None  #: all its tensors, as rounded by the log
    bits_per_weight: float | None = None
    n_tensors: int | None = None
    n_layers: int | None = None
    layer_period: int = 1  #: after how many layers the kinds of layer repeat
    n_embd: int | None = None
    n_vocab: int | None = None
    n_experts: int | None = None
    #: layers offloaded by the log, and of how many; builds without a GPU log them too
    offloaded: tuple[int, int] | None = None
    cpu_buffer_bytes: float = 0.0  #: weights that stayed in the CPU's buffers
    device_buffer_bytes: float = 0.0  #: weights in those of devices
    devices: tuple[tuple[str, str], ...] = ()

    @property
    def file_name(self) -> str:
        """The last part of its path, of either system."""
        return base_name(self.file)

    @property
    def is_tied(self) -> bool:
        """True if the output head is the embedding table, shown by the number of tensors.

        All layers, or groups of them, have equally many tensors. If two are left over, they are the
        table and the last norm, and there is no tensor for a head. More left over show nothing:
        they may be a head, or factors of rotary embeddings.
        """
        groups = (self.n_layers or 0) // self.layer_period
        if self.n_tensors is None or groups < _LEAST_GROUPS:
            return False
        return self.n_tensors % groups == 2

    @property
    def least_step_bytes(self) -> float | None:
        """The fewest bytes that a decoding step reads; None for experts, or without sizes.

        All weights but the embedding table, and that too if it is the output head. The table's size
        is that of the CPU's part if all layers are on a GPU, otherwise at most its shape in 2 bytes
        (4 in a file of F32) each.
        """
        if self.size_bytes is None or self.n_experts != 0:
            return None
        if self.is_tied:
            return self.size_bytes
        if self.device_buffer_bytes and self.offloaded and len(set(self.offloaded)) == 1:
            table: float = self.cpu_buffer_bytes
        else:
            width = 4 if "F32" in (self.level or "F32") else 2
            table = (self.n_embd or 0) * (self.n_vocab or 0) * width
        return max(self.size_bytes - table, 0) if table else None

    @property
    def placement(self) -> str:
        """The place of the weights, by the buffers that were filled; empty if the log lacks it."""
        if self.device_buffer_bytes:
            return "{} of {} layers offloaded".format(*self.offloaded) if self.offloaded else ""
        return "all weights on the CPU" if self.cpu_buffer_bytes else ""

    def __str__(self) -> str:
        size = f"{self.size_bytes / 1e6:,.0f} MB" if self.size_bytes else ""
        return ", ".join(filter(None, [self.name or self.file_name, self.level, size]))


def base_name(path: str) -> str:
    """The last part of a path of either system."""
    windows = "\\" in path and "/" not in path
    return PureWindowsPath(path).name if windows else PurePosixPath(path).name


@dataclass(slots=True)
class ModelReader:
    """Gathers each load's facts from a log's lines."""

    _loads: list[dict[str, Any]] = field(default_factory=list)
    _devices: list[tuple[str, str]] = field(default_factory=list)

    def feed(self, line: str) -> None:
        """Parse one line."""
        if loaded := _LOADED.match(line):
            if len(self._loads) < _MAX_MODELS:
                self._loads.append(
                    {"file": loaded[2], "n_tensors": int(loaded[1]), "devices": (*self._devices,)}
                )
            self._devices.clear()
        elif device := _DEVICE.search(line):
            # The log prints it before the file.
            self._devices[_MAX_DEVICES:] = []
            self._devices.append((device[1], device[2]))
        elif self._loads:
            _add_detail(self._loads[-1], line)

    @property
    def n_loaded(self) -> int:
        """Loads that were begun."""
        return len(self._loads)

    @property
    def last_file(self) -> str:
        """The name of the file that was loaded last; empty without one."""
        return base_name(self._loads[-1]["file"]) if self._loads else ""

    @property
    def models(self) -> tuple[ModelFacts, ...]:
        """The loads, in their order."""
        return tuple(ModelFacts(**load) for load in self._loads)


def _add_detail(load: dict[str, Any], line: str) -> None:
    if found := _KEY.match(line):
        _add_key(load, found[1], found[2].strip())
    elif found := _INFO.match(line):
        _add_info(load, found[1], found[2].strip())
    elif found := _OFFLOADED.match(line):
        load["offloaded"] = int(found[1]), int(found[2])
    elif found := _BUFFER.match(line):
        side = "cpu_buffer_bytes" if found[1].startswith("CPU") else "device_buffer_bytes"
        load[side] = load.get(side, 0.0) + float(found[2]) * 2**20


def _add_key(load: dict[str, Any], key: str, value: str) -> None:
    if key == "general.name":
        load["name"] = value
    elif key.endswith(".block_count") and _is_count(value):
        load["n_layers"] = int(value)
    elif key.endswith(".full_attention_interval") and _is_count(value):
        load["layer_period"] = max(int(value), 1)


def _is_count(value: str) -> bool:
    return re.fullmatch(COUNT, value, re.ASCII) is not None


def _add_info(load: dict[str, Any], key: str, value: str) -> None:
    if key in {"file type", "model ftype"}:
        load["level"] = value
    elif key in {"file size", "model size"} and (size := _SIZE.match(value)):
        load["size_bytes"] = float(size[1]) * _UNITS[size[2]]
        load["bits_per_weight"] = float(size[3]) if size[3] else None
    elif key in _COUNTS and _is_count(value):
        load[_COUNTS[key]] = int(value)
