"""Settings of servers that we start."""

import pytest

from pytest_asperf.config.engine_settings import parse_settings
from pytest_asperf.errors import ConfigError


def test_options_are_kept_as_written() -> None:
    """They are divided into words where the server is started."""
    table = {"parallel": 4, "server_args": "--cache-ram 0 --grammar 'root ::= [a-z]*'"}
    assert parse_settings(table, where="test").as_dict() == table


@pytest.mark.parametrize("args", ["--port 8080", "--host=0.0.0.0", "-m other.gguf", "'", 3])
def test_where_it_listens_and_what_it_serves_are_ours(args: object) -> None:
    """Another port would get no request, another model be measured under this one's name."""
    with pytest.raises(ConfigError, match="server_args"):
        parse_settings({"server_args": args}, where="test")
