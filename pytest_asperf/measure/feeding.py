"""The input of models: corpora, prompts, and the tokens of a workload."""

import hashlib
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, TypeAlias

from pytest_asperf.analysis.facts import ScoredText
from pytest_asperf.config.spec import ModelSpec
from pytest_asperf.config.table import CheckedTable, Rule, full_list, matching
from pytest_asperf.config.text_file import UnreadableTextError, read_json_table, read_text
from pytest_asperf.config.workload import Workload
from pytest_asperf.engine_process import LoadedFacts, Worker
from pytest_asperf.errors import Advice, ConfigError, ModelError, UnfitError, printable
from pytest_asperf.modelfiles.hub_cache import shipped_prompts

#: More than one message to a worker can carry of its tokens.
_MAX_CORPUS_BYTES: Final = 128 * 2**20
#: Characters of text for each wanted token; more than any tokenizer needs for one.
_CHARACTERS_PER_TOKEN: Final = 12
#: Tokens of a text that may be repeated for longer workloads: a chunk, which PPL needs as well.
MIN_TOKENS: Final = 512
_LEAST_TOKENS: Final = 2
_TEXT: Final = matching(re.compile(r".+", re.DOTALL))
_TEXTS: Final = Rule(
    lambda value: [_TEXT(text) for text in full_list(value)], "a list of one or more texts"
)

Prompts: TypeAlias = tuple[tuple[str, tuple[int, ...]], ...]


@dataclass(frozen=True, slots=True)
class Corpus:
    """A text that models are scored on and fed from, all its line ends alike."""

    path: Path
    sha256: str
    text: str

    def section(self, chunks: Sequence[Sequence[int]], total: int) -> ScoredText:
        """The part of it that these chunks from its beginning are, of so many in total."""
        return ScoredText(self.path.name, self.sha256, len(chunks), total, len(chunks[0]))


def read_corpus(spec: ModelSpec, shipped: Path) -> Corpus:
    """The text that a model is scored on and fed from: its own, or the shipped one."""
    path = spec.corpus or shipped
    try:
        text = read_text(path, _MAX_CORPUS_BYTES)
    except UnreadableTextError as err:
        raise ModelError(
            f"the corpus {path} of {spec.name} {err}", remedy="name a UTF-8 text file"
        ) from err
    if not text.strip():
        raise ModelError(
            f"the corpus {path} of {spec.name} has no text in it",
            remedy="name a file with text in it",
        )
    return Corpus(path, hashlib.sha256(text.encode()).hexdigest(), text)


@dataclass(frozen=True, slots=True)
class ServedText:
    """The source of prompts for a server. No two prompts are equal."""

    text: str


Fed: TypeAlias = "Sequence[int] | ServedText"


def fed_with(
    worker: Worker, name: str, corpus: Corpus, workload: Workload, loaded: LoadedFacts
) -> Fed:
    """The input of a workload: tokens, or the text that a server's prompts are made of.

    Raises:
        UnfitError: several users, or a prompt that is in a cache, of an engine that is no server.
        ModelError: the corpus is too short.
    """
    if loaded.served is not None:
        return ServedText(corpus.text[: workload.room * _CHARACTERS_PER_TOKEN])
    if workload.after and loaded.loads_each_run:
        raise UnfitError(
            f"{workload.name} times a process that has answered requests, and "
            f"{worker.build.engine} starts a process for each run",
            remedy=Advice("measure it on llama_cpp, mlx or a server", "engine"),
        )
    if workload.users > 1 or workload.warm:
        asks = "needs a cached prompt" if workload.warm else f"has {workload.users} users"
        raise UnfitError(
            f"{workload.name} {asks}, and {worker.build.engine} is not a server",
            why="a library works for one at a time, and keeps no prompts by itself",
            remedy=Advice("measure it on llama_server, mlx_server or openai", "engine"),
        )
    return workload_tokens(worker, name, corpus, workload)


def workload_tokens(worker: Worker, name: str, corpus: Corpus, workload: Workload) -> list[int]:
    """The tokens a workload is fed with: real text, so that experts route as they do.

    A text that is too short is repeated; one too short for that is a ModelError.
    """
    wanted = workload.room
    tokens = worker.tokenize(name, corpus.text[: wanted * _CHARACTERS_PER_TOKEN])
    n_needed = min(wanted, MIN_TOKENS)
    if len(tokens) < n_needed:
        raise ModelError(
            f"{name}: the corpus {corpus.path} gives {len(tokens)} tokens, and {workload.name} "
            f"needs {n_needed}",
            why="throughput is measured on real text, not on a few words over and over",
            remedy=f"name a corpus of at least {MIN_TOKENS} tokens",
        )
    return (tokens * (wanted // len(tokens) + 1))[:wanted]


def read_prompts(path: Path | None) -> tuple[tuple[str, str], ...]:
    """Category and text of each prompt of a JSON table; None is the shipped prompts."""
    file = path or shipped_prompts()
    try:
        table = CheckedTable(str(file), read_json_table(file))
        prompts = tuple(
            (printable(category, 80), text)
            for category in table.values
            for text in table.need(category, _TEXTS)
        )
    except UnreadableTextError as error:
        raise _unusable(f"{file}: it {error}") from error
    except ConfigError as error:
        raise _unusable(error.what) from error
    if not prompts:
        raise _unusable(f"{file}: it has no categories")
    return prompts


def tokenized(
    worker: Worker, name: str, prompts: tuple[tuple[str, str], ...], *, at_most: int
) -> Prompts:
    """Category and tokens of each prompt, which has at least two tokens and `at_most` so many."""
    suite = []
    for category, text in prompts:
        tokens = tuple(worker.tokenize(name, text))
        if not _LEAST_TOKENS <= len(tokens) <= at_most:
            raise ModelError(
                f"the prompt {printable(text, 40)!r} has {len(tokens)} tokens, not "
                f"{_LEAST_TOKENS} to {at_most}",
                why="a prompt and what is generated after it must fit into the model's context",
                remedy="shorten it, or generate fewer tokens with n_tokens",
            )
        suite.append((category, tokens))
    return tuple(suite)


def _unusable(what: str) -> ModelError:
    return ModelError(
        what,
        why="acceptance depends on what is generated",
        remedy='write {"code": ["def area(", ...], "text": [...]}, a list of prompts per category',
    )
