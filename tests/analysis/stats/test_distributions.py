"""scipy's distribution functions without the rest of their package."""

import subprocess
import sys

import pytest

_ALONE = """
import sys
from pytest_asperf.analysis.stats import distributions
assert "scipy.special" not in sys.modules, "the whole package is imported"
import scipy.special
"""
_BEFORE = """
import scipy.special
from pytest_asperf.analysis.stats import distributions
"""
#: A version that has them in another module.
_MOVED = """
import sys
sys.modules["scipy.special._ufuncs"] = None
from pathlib import Path
import scipy
Path("special.py").write_text("bdtr = bdtrc = betaincinv = chdtri = ndtri = stdtrit = stdtr = 1")
scipy.__path__.insert(0, str(Path.cwd()))
from pytest_asperf.analysis.stats import distributions
import scipy.special
assert scipy.special.__file__ == str(Path("special.py").resolve())
"""
_SAME = """
for name in ("bdtr", "bdtrc", "betaincinv", "chdtri", "ndtri", "stdtrit", "stdtr"):
    assert getattr(distributions, name) is getattr(scipy.special, name), name
"""


@pytest.mark.parametrize("code", [_ALONE, _BEFORE, _MOVED], ids=["alone", "before", "moved"])
def test_the_functions_are_those_of_the_package(
    tmp_path_factory: pytest.TempPathFactory, environment: dict[str, str], code: str
) -> None:
    """Alone, after the package, and if a version has them in another module."""
    subprocess.run(
        [sys.executable, "-c", code + _SAME],
        check=True,
        timeout=60,
        cwd=tmp_path_factory.mktemp("scipy"),
        env=environment,
    )
