"""Names of workloads."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_asperf.config.workload import Workload, parse_workload
from pytest_asperf.errors import ConfigError

KINDS = st.sampled_from(["pp", "tg", "itl", "ttft"])


@given(KINDS, st.integers(1, 9999), st.integers(0, 99), st.integers(1, 99))
def test_a_name_is_read_as_it_is_written(kind: str, n: int, depth: int, users: int) -> None:
    """Kind, tokens, depth and users; a request has its prompt instead of the depth."""
    depth = 0 if kind == "ttft" else depth
    name = f"{kind}{n}{f'@d{depth}' if depth else ''}{f'@c{users}' if users > 1 else ''}"
    parsed = parse_workload(name, where="test")
    assert (parsed.name, parsed.n_tokens, parsed.depth, parsed.users) == (name, n, depth, users)
    assert (parsed.n_counted, parsed.n_ctx) == (n * users, n + depth)


def test_a_request_of_several_users() -> None:
    """`@cN` comes after the whole of it."""
    parsed = parse_workload("pp512+tg128@c4", where="test")
    assert parsed == Workload("request", 128, 512, users=4)
    assert parsed.name == "pp512+tg128@c4"


def test_a_warm_prompt_and_a_tail_have_suffixes() -> None:
    """`@warm` and `@pNN` end the name; a percentile is judged in pairs only."""
    assert parse_workload("ttft512@c4@warm", where="test") == Workload("ttft", 512, 0, 4, warm=True)
    for name in ("ttft512@warm@p95", "itl128@d64@p99", "pp512+tg128@c2@p90"):
        parsed = parse_workload(name, where="test", any_cost=True)
        assert (parsed.name, parsed.percentile) == (name, int(name[-2:]))
        alone, percentile = name.split("@p")
        remedy = f'gate("{name}"), or latency("{alone}").percentile({percentile})'
        with pytest.raises(ConfigError, match=re.escape(remedy)):
            parse_workload(name, where="test")


def test_requests_before_a_workload_have_a_suffix() -> None:
    """A long prompt comes first, then short requests, all in the context of the workload."""
    parsed = parse_workload("tg128@d64@after3@c4", where="test")
    assert parsed == Workload("tg", 128, 64, 4, after=3)
    assert parsed.name == "tg128@d64@after3@c4"
    assert [request.name for request in parsed.before] == ["ttft1024", *["pp64+tg8"] * 2]
    assert (parsed.n_ctx, parsed.room) == (192, 1024)
    assert parse_workload("tg128", where="test").before == ()
    assert parse_workload("pp2048@after1", where="test").room == 2048


def test_sampling_has_a_suffix() -> None:
    """Behind earlier requests and users, of what decodes."""
    parsed = parse_workload("tg128@d64@after3@c4@topk0", where="test")
    assert parsed == Workload("tg", 128, 64, 4, after=3, sampled="topk0")
    assert parsed.name == "tg128@d64@after3@c4@topk0"
    assert parse_workload("itl8@grammar", where="test").sampled == "grammar"


def test_a_misspelt_name_has_the_nearest_one() -> None:
    """The right spelling comes before all forms that there are."""
    with pytest.raises(ConfigError, match="did you mean 'tg128@after20'"):
        parse_workload("tg128@aftr20", where="test")


@pytest.mark.parametrize(
    "name",
    [
        *("tg128@after", "tg128@after0", "tg128@c4@after2", "load@after2", "tg8@after2@d4"),
        *("tg128@c0", "tg128@c", "tg128@c4@d16", "c4", "itl", "ttft8@d8"),
        *("tg8@warm", "pp8+tg8@warm", "tg8@p95", "pp8@p95", "ttft8@p95@warm", "ttft8@p9"),
        *("pp8@topk0", "ttft8@grammar", "pp8+tg8@topk0", "tg8@topk40", "tg8@grammar@c2"),
    ],
)
def test_what_is_no_name_is_refused(name: str) -> None:
    """The message shows the forms that there are."""
    with pytest.raises(ConfigError, match="is not a workload"):
        parse_workload(name, where="test")
