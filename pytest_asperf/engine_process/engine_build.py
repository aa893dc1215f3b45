"""The basis from which a worker is started."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from pytest_asperf.config.settings import NICE

if TYPE_CHECKING:
    from pathlib import Path

    from pytest_asperf.config.engines import Engine


@dataclass(frozen=True, slots=True)
class EngineBuild:
    """The basis from which a worker is started: an engine in an interpreter that has it installed.

    Attributes:
        tools: the folder of the programs that an engine runs, if it runs programs.
        url: of the server that an engine asks, if it starts none itself.
        key_variable: the environment's variable that holds that server's key.
        nice: the nice value that its process takes, as far as the system allows it.
        libraries: the folder of the libraries that llama-cpp-python loads instead of its own.
    """

    engine: Engine
    python: Path
    tools: Path | None = None
    url: str | None = None
    key_variable: str = ""
    nice: int = NICE
    libraries: Path | None = None

    @property
    def variables(self) -> dict[str, str]:
        """The environment's variables that its process has in addition."""
        return {} if self.libraries is None else {"LLAMA_CPP_LIB_PATH": str(self.libraries)}

    @property
    def opened_with(self) -> tuple[str, ...]:
        """The options that the engine itself is opened with."""
        if self.engine == "openai":
            return (self.url or "", self.key_variable)
        return () if self.tools is None else (str(self.tools),)
