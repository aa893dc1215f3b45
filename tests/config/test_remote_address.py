"""Addresses of RPC servers: private unless the user insists."""

import pytest

from pytest_asperf.config.engine_settings import parse_settings
from pytest_asperf.errors import ConfigError


@pytest.mark.parametrize(
    "address",
    [
        *("127.0.0.1:50052", "10.0.0.2:1", "192.168.1.9:65535", "169.254.3.4:50052", "[::1]:50052"),
        *("[fe80::1]:50052", "mini.local:50052", "mini:50052", "loopback"),
        *("ssh:mini.example.org", "ssh:me@10.0.0.2", "public:rpc.example.org:50052"),
    ],
)
def test_usable_addresses(address: str) -> None:
    """A private address, a server to start, and a public one by its prefix."""
    assert parse_settings({"remote": address}, where="here").remote == address


@pytest.mark.parametrize(
    "address",
    [
        *("8.8.8.8:50052", "rpc.example.org:50052", "[2001:4860:4860::8888]:50052"),
        *("10.0.0.2", "10.0.0.2:0", "10.0.0.2:65536", ":50052", "-oProxyCommand=x:1", ""),
        *("ssh:", "ssh:-oProxyCommand=touch", "ssh:a b", "public:", "10.0.0.2:50052 -x", 5, None),
    ],
)
def test_refused_addresses(address: object) -> None:
    """A public address, one with an option of ssh's, and texts that are no address at all."""
    with pytest.raises(ConfigError, match="RPC has no encryption and no password"):
        parse_settings({"remote": address}, where="here")
