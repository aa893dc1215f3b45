"""`asperf bisect` over releases of mlx-lm from the package index, with patched ones among them.

Installs six environments, which needs minutes and a network: run with ASPERF_TEST_BUILDS=1.
"""

import os
import re
import subprocess
import sys
import zipfile
from collections.abc import Iterable
from pathlib import Path

import pytest
from click.testing import CliRunner

from pytest_asperf.cli import app

RELEASED = ("0.31.1", "0.31.2", "0.31.3")
PATCHED = ("0.32.0", "0.32.1", "0.32.2")
#: Each layer's calls in each step, and a slow release's additional work.
CALLED = "class KVCache(_BaseCache):\n    step = 256\n"
SLOW = f"""{CALLED}
    def __getattribute__(self, name):
        if name == "update_and_fetch":
            import time
            time.sleep(0.0005)
        return object.__getattribute__(self, name)
"""


def patched(wheel: Path, folder: Path) -> Path:
    """Write a release's wheel anew, with a slow KV cache."""
    target = folder / wheel.name
    with zipfile.ZipFile(wheel) as source, zipfile.ZipFile(target, "w") as copy:
        for name in source.namelist():
            content = source.read(name)
            if name == "mlx_lm/models/cache.py":
                text = content.decode()
                assert text.count(CALLED) == 1
                content = text.replace(CALLED, SLOW).encode()
            if name.endswith(".dist-info/RECORD"):  # installers need not compare a missing part
                lines = content.decode().splitlines()
                kept = (line for line in lines if not line.startswith("mlx_lm/models/cache.py"))
                content = "\n".join([*kept, "mlx_lm/models/cache.py,,"]).encode()
            copy.writestr(source.getinfo(name), content)  # with its date: the same each time
    return target


def download(versions: Iterable[str], folder: Path) -> list[Path]:
    """Download wheels by this interpreter's pip."""
    for version in versions:
        command = [sys.executable, "-m", "pip", "download", "-q", "--no-deps", "-d", str(folder)]
        subprocess.run([*command, f"mlx-lm=={version}"], check=True, capture_output=True)
    return sorted(folder.glob("*.whl"))


def test_a_patched_release_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Three releases as published, then three that are slower: the first of those is named."""
    monkeypatch.chdir(tmp_path)
    if "ASPERF_CACHE" not in os.environ:
        monkeypatch.setenv("ASPERF_CACHE", str(tmp_path / "cache"))
    (tmp_path / "slow").mkdir()
    tables = []
    for version, wheel in zip(PATCHED, download(PATCHED, tmp_path / "published"), strict=True):
        path = patched(wheel, tmp_path / "slow")
        tables.append(f'[builds."slow-{version}"]\nrequirements = ["{path}", "mlx[cpu]"]\n')
    (tmp_path / "asperf.toml").write_text("\n".join(tables))
    builds = [f"mlx-lm[cpu]=={version}" for version in RELEASED]
    builds += [f"slow-{version}" for version in PATCHED]
    words = [builds[0], builds[-1], "--builds", ",".join(builds), "--workload", "tg64"]
    done = CliRunner().invoke(app, ["bisect", *words, "--model", "asperf-draft", "--set", "seed=1"])
    sys.stdout.write(done.output)
    assert done.exit_code == 0, done.output
    assert "culprit: slow-0.32.0" in done.stdout
    assert "before  mlx-lm[cpu]==0.31.3 passes" in done.stdout
    assert len(re.findall(r"^(?:PASS|FAIL) ", done.stdout, re.MULTILINE)) <= 3 + 2
