import pytest

from tests.plugin.conftest import Project
from tests.served import WordServer

KEY = "sk-a-secret-of-24-letters"
SPEED = 'def test_it(throughput):\n    throughput("tg16").estimate\n'


def test_a_key_is_sent_and_never_shown(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    """The server gets the key of the named variable; no output and no file has it."""
    monkeypatch.setenv("MY_KEY", KEY)
    server = WordServer(key=KEY)
    project.config(engine="openai", default_model="asperf-target", max_cv="1000%")
    project.test(SPEED)
    url = f"--asperf-url=http://{server.endpoint.authority}"
    refused = project.run(url, "-vv")
    refused.stdout.fnmatch_lines(["*it needs a key, and there is none (HTTP 401)*"])
    result = project.run(url, "--asperf-api-key-variable=MY_KEY", "--asperf-report=json:out.json")
    result.assert_outcomes(passed=1)
    written = (project.path / "out.json").read_text("utf-8")
    assert KEY not in written + result.stdout.str() + result.stderr.str()
