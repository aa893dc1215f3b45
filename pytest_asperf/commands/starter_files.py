"""The configuration and the tests that `asperf init` writes for model files, by their headers."""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from pytest_asperf.analysis.capacity import Fit, MemoryCapacity, kv_cache_bytes
from pytest_asperf.analysis.speculation_model import Vocabulary
from pytest_asperf.analysis.stats.estimate import memory_text
from pytest_asperf.config.engines import FLOAT_LEVELS, Engine
from pytest_asperf.config.settings import DECLARED, default_text, session_option
from pytest_asperf.config.text_file import shipped_table
from pytest_asperf.errors import ConfigError, ModelError, printable
from pytest_asperf.modelfiles.gguf_read import GgufInfo, gguf_parts, inspect_gguf
from pytest_asperf.modelfiles.levels import contradiction
from pytest_asperf.modelfiles.mlx_read import MlxInfo, inspect_mlx
from pytest_asperf.modelfiles.sizes import KvCache

#: The first letters of a model's name; 64 are allowed, and a number may follow.
_LONGEST_NAME: Final = 56
_KV_BYTES: Final = (2.0, 2.0)


@dataclass(frozen=True, slots=True)
class GivenFile:
    """A GGUF file or an MLX folder, as its header states it."""

    path: str  #: as the configuration names it
    engine: Engine
    level: str | None  #: its quantization, None if the engine cannot make it
    title: str  #: the model as it calls itself, printable
    weights_bytes: int
    kv_bytes: int
    context: int  #: tokens that `kv_bytes` is for
    vocabulary: str | None  #: equal for two files of one engine that split text alike
    memory: MemoryCapacity | None  #: this machine's, None if unknown
    tokens: Vocabulary | None = None  #: of a GGUF file, to find a draft with other padding

    def splits_as(self, other: GivenFile) -> bool:
        """True if both are of one engine and have the same tokens, padding apart."""
        if self.engine != other.engine:
            return False
        if self.tokens and other.tokens and self.tokens.pairs_with(other.tokens):
            return True
        return self.vocabulary == other.vocabulary

    @property
    def fits(self) -> bool:
        """True if it fits in the memory, or if either is unknown."""
        return self._fit is None or self._fit.fits

    @property
    def need(self) -> str:
        """The memory that it needs, for a reader."""
        text = (
            f"{memory_text(self.weights_bytes)} of weights, {memory_text(self.kv_bytes)} "
            f"of KV cache for {self.context} tokens"
        )
        if self._fit is None:
            return f"{text}; this machine's memory is unknown"
        too_large = "too large for" if self._fit.weights_fit else "weights above 60 % of"
        how = "fits in" if self._fit.fits else too_large
        return f"{text}; {how} {memory_text(self._fit.memory.nbytes)}"

    @property
    def _fit(self) -> Fit | None:
        if self.memory is None:
            return None
        return Fit(self.memory, self.weights_bytes, self.kv_bytes)


@dataclass(frozen=True, slots=True)
class GivenModel:
    """One model: a file, or files of several quantizations."""

    name: str
    files: tuple[GivenFile, ...]

    @property
    def is_source(self) -> bool:
        """True if other quantizations are made from its one file, or its own is unknown."""
        (first, *others) = self.files
        return not others and (first.level is None or first.level in FLOAT_LEVELS)

    def address(self, file: GivenFile) -> str:
        """The spec of one of its files."""
        return self.name if self.is_source else f"{self.name}:{file.level}"


def read_given(
    paths: Iterable[Path], folder: Path, memory: MemoryCapacity | None
) -> tuple[list[GivenFile], list[ModelError]]:
    """The headers of the files, each once, and why others are no models that can be run.

    Paths in the folder are relative to it; a model in parts is named by its first part.

    Raises:
        ModelError: none of the files is a model, or one does not exist.
    """
    given: list[GivenFile] = []
    left_out: list[ModelError] = []
    asked = dict.fromkeys(path.absolute() for path in paths)
    later_parts = {part for path in asked for part in gguf_parts(path)[1:]}
    for path in (path for path in asked if path not in later_parts):
        try:
            given.append(_read(path, folder, memory))
        except ModelError as error:
            if not path.exists():
                raise
            left_out.append(error)
    if left_out and not given:
        raise left_out[0]
    return given, left_out


def named(files: Iterable[GivenFile], taken: Collection[str]) -> list[GivenModel]:
    """The models of these files; files that differ in the quantization only are one model."""
    groups: dict[tuple[object, ...], list[GivenFile]] = {}
    for file in files:
        key: tuple[object, ...] = (_stem(file), file.engine, file.title, file.vocabulary)
        levels = [other.level for other in groups.get(key, [])]
        # Two files of one quantization, or of none, are two models.
        alone = (file.path,) if file.level is None or file.level in levels else ()
        groups.setdefault(key + alone, []).append(file)
    used = {name.casefold() for name in taken}
    return [GivenModel(_free(_stem(group[0]), used), tuple(group)) for group in groups.values()]


def pair_of(models: Iterable[GivenModel]) -> tuple[GivenModel, GivenModel] | None:
    """A draft and a target: the two furthest apart in size that fit and split text alike."""
    fitting = [m for m in models if m.files[0].vocabulary is not None and m.files[0].fits]
    pairs = [
        (draft, target)
        for draft in fitting
        for target in fitting
        if _weights(target) >= 2 * _weights(draft) and draft.files[0].splits_as(target.files[0])
    ]
    return max(pairs, key=lambda pair: _weights(pair[1]) / _weights(pair[0]), default=None)


def _weights(model: GivenModel) -> int:
    return model.files[0].weights_bytes


def _read(path: Path, folder: Path, memory: MemoryCapacity | None) -> GivenFile:
    text = path.relative_to(folder).as_posix() if path.is_relative_to(folder) else str(path)
    # `~` at the start of a path is a user's home.
    text = str(path) if text.startswith("~") else text
    try:
        text.encode()
    except UnicodeEncodeError:
        raise ConfigError(
            f"{path}: its name is not UTF-8",
            why="a configuration file could not name it",
            remedy="rename it",
        ) from None
    if path.is_dir():
        return _of_folder(inspect_mlx(path), text, memory)
    return _of_gguf(inspect_gguf(path), text, memory)


def _of_gguf(info: GgufInfo, path: str, memory: MemoryCapacity | None) -> GivenFile:
    context = KvCache().positions(info.n_ctx_train)
    level = info.level
    name = f'"{info.name}", ' if info.name else ""
    return GivenFile(
        path=path,
        engine="llama_cpp",
        level=None if level is None or contradiction(info, level) else level,
        title=f"{name}{info.architecture}, {_parameters(info.n_params)}",
        weights_bytes=sum(tensor.nbytes for tensor in info.tensors),
        kv_bytes=kv_cache_bytes(info.kv_elements, context, _KV_BYTES),
        context=context,
        vocabulary=info.tokenizer_sha256,
        memory=memory,
        tokens=info.vocabulary,
    )


def _of_folder(info: MlxInfo, path: str, memory: MemoryCapacity | None) -> GivenFile:
    sizes = info.sizes
    context = KvCache().positions(sizes.n_ctx_train if sizes else None)
    return GivenFile(
        path=path,
        engine="mlx",
        level=info.level,
        title="a folder for MLX",
        weights_bytes=sum(tensor.nbytes for tensor in info.tensors),
        kv_bytes=kv_cache_bytes(sizes.kv_elements, context, _KV_BYTES) if sizes else 0,
        context=context,
        vocabulary=info.tokenizer_sha256,
        memory=memory,
    )


def _parameters(count: int) -> str:
    return f"{count / 1e9:.1f} B parameters" if count >= 1e9 else f"{count / 1e6:.1f} M parameters"


def _stem(file: GivenFile) -> str:
    """A file's name without its quantization, in letters that a model's name may have."""
    path = Path(file.path)
    stem = path.name if file.engine == "mlx" else path.stem
    stem = re.sub(r"-00001-of-[0-9]{5}$", "", stem)
    if file.level is not None:
        stem = re.sub(rf"[-._ ]?{re.escape(file.level)}$", "", stem, flags=re.IGNORECASE)
        # A folder of quantizations, `gemma/4bit`, has the name.
        stem = stem or path.parent.name
    stem = re.sub(r"[^A-Za-z0-9._-]+", "-", stem).strip("-.")[:_LONGEST_NAME].rstrip("-.")
    stem = re.sub(r"(\.gguf)+$", "", stem, flags=re.IGNORECASE)
    return stem or "model"


def _free(stem: str, used: set[str]) -> str:
    """The name, with a number if another model has it."""
    number, name = 1, stem
    while name.casefold() in used:
        number += 1
        name = f"{stem}-{number}"
    used.add(name.casefold())
    return name


_SHIPPED: Final = "asperf-target"
_TEXTS: Final[dict[str, str]] = shipped_table("starter-files")
_BARE_KEY: Final = re.compile(r"[A-Za-z0-9_-]+")
#: The settings that most projects change; the others are in the documentation.
_OFFERED: Final = ("chunks", "tolerance", "inconclusive", "max_seconds")
_WIDTH: Final = 26


def configuration(
    models: Sequence[GivenModel], pair: tuple[GivenModel, GivenModel] | None, machine: str
) -> str:
    """The text of asperf.toml."""
    fitting = [model for model in models if model.files[0].fits]
    default = next((model.address(model.files[0]) for model in [*fitting, *models]), _SHIPPED)
    lines = [_assigned("default_model", quoted(default))]
    lines += [f"# {_assigned(key, _default(key))}" for key in _OFFERED]
    head = _TEXTS["head"].format(machine=printable(machine, 200), settings="\n".join(lines))
    tables = [_table(model) for model in models] or [_TEXTS["shipped_model"]]
    return "".join([head, *tables, *([_slots(*pair)] if pair else [])])


def _assigned(key: str, value: str) -> str:
    """A setting as a configuration file has it, with its meaning."""
    return f"{f'{key} = {value}':{_WIDTH}}  # {DECLARED[key].help}"


def _default(key: str) -> str:
    text = default_text(key)
    return text if text.isdecimal() else quoted(text)


def first_tests(
    models: Sequence[GivenModel], pair: tuple[GivenModel, GivenModel] | None, file: str
) -> str:
    """The text of a file of tests."""
    parts = list(_tests_of(models) if models else _shipped_tests())
    package = "mlx-lm" if models and models[0].files[0].engine == "mlx" else "llama-cpp-python"
    option = session_option("candidate")
    head = _TEXTS["tests"].format(file=file, package=package, candidate=option)
    body = "\n".join([head, *parts, _TEXTS["gate"].format(candidate=option)])
    return body + (f"\n{_commented_pair(*pair)}" if pair else "")


def quoted(text: str) -> str:
    """A text as TOML and Python both read it."""
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")


def _table(model: GivenModel) -> str:
    lines = ["", f"[models.{_key(model.name)}]"]
    for file in model.files:
        level = file.level or "no known quantization"
        lines.append(f"# {level}, {file.title}: {file.need}")
    if model.files[0].engine == "mlx":
        lines.append('engine = "mlx"')
    lines.append(_source(model))
    lines.append('# corpus = "corpora/wiki.test.txt"    # your own text for PPL and KLD')
    if model.files[0].engine != "mlx":
        lines.append("# settings = { threads = 1 }          # and n_gpu_layers, flash_attn, type_k")
    return "\n".join([*lines, ""])


def _source(model: GivenModel) -> str:
    if not model.is_source:
        files = (f"{_key(str(file.level))} = {quoted(file.path)}" for file in model.files)
        return f"files = {{ {', '.join(files)} }}"
    (file,) = model.files
    return f"{'hf' if file.engine == 'mlx' else 'gguf'} = {quoted(file.path)}"


def _slots(draft: GivenModel, target: GivenModel) -> str:
    times = target.files[0].weights_bytes / draft.files[0].weights_bytes
    return f"""
# These two split text alike, and one is {times:.1f} times as large: a pair for speculation.
# [slots]
# draft = {quoted(draft.address(draft.files[0]))}
# target = {quoted(target.address(target.files[0]))}
"""


def _tests_of(models: Sequence[GivenModel]) -> Iterator[str]:
    used: set[str] = set()
    for model in models:
        file, name = model.files[0], _identifier(model.name, used)
        skip = "" if file.fits else f"\n@pytest.mark.skip(reason={quoted(file.need)})"
        small = "8bit" if file.engine == "mlx" else "q8_0"
        yield skip + _caches(model.address(file), name, small)
        if model.is_source and file.level is not None:
            yield skip + _levels(model.name, name, small.replace("q", "Q"), file.level, "1%")
        elif len(model.files) > 1:
            by_size = sorted(model.files, key=lambda each: each.weights_bytes)
            level, baseline = str(by_size[0].level), str(by_size[-1].level)
            yield skip + _levels(model.name, name, level, baseline, "5%")


def _shipped_tests() -> Iterator[str]:
    yield _caches(f"{_SHIPPED}:Q8_0", "target", "q8_0")
    yield _levels(_SHIPPED, "target", "Q8_0", "F16", "1%")


def _caches(address: str, name: str, small: str) -> str:
    return _TEXTS["caches"].format(address=quoted(address), name=name, small=quoted(small))


def _levels(address: str, name: str, level: str, baseline: str, most: str) -> str:
    return _TEXTS["levels"].format(
        address=quoted(address),
        name=name,
        level=quoted(level),
        baseline=quoted(baseline),
        most=quoted(most),
    )


def _commented_pair(draft: GivenModel, target: GivenModel) -> str:
    return _TEXTS["pair"].format(
        draft=draft.name,
        target=target.name,
        draft_address=quoted(draft.address(draft.files[0])),
        target_address=quoted(target.address(target.files[0])),
    )


def _identifier(name: str, used: set[str]) -> str:
    word = re.sub(r"\W", "_", name, flags=re.ASCII).lower()
    while word in used:
        word += "_"
    used.add(word)
    return word


def _key(name: str) -> str:
    return name if _BARE_KEY.fullmatch(name) else quoted(name)
