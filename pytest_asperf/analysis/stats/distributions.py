"""scipy's distribution functions alone; importing all of `scipy.special` lasts eight times as long.

Most of that prepares functions for arrays of other libraries. Each session that measures needs
these few.
"""

import sys
from types import ModuleType
from typing import Any, Final

import scipy  # type: ignore[import-untyped]  # scipy ships no types

_PACKAGE: Final = "scipy.special"


def _functions() -> Any:
    """Import the package's compiled functions while it is empty.

    The empty package is removed, so that a later import brings everything, with these functions.
    """
    if _PACKAGE not in sys.modules:
        empty = sys.modules[_PACKAGE] = ModuleType(_PACKAGE)
        empty.__path__ = [f"{folder}/special" for folder in scipy.__path__]
        try:
            from scipy.special import _ufuncs  # type: ignore[import-untyped]  # noqa: PLC0415
        except ImportError:  # a version may have them in another module
            pass
        else:
            return _ufuncs
        finally:
            del sys.modules[_PACKAGE]
    return scipy.special


_compiled: Final = _functions()
#: The binomial distribution, and the share above it.
bdtr: Final[Any] = _compiled.bdtr
bdtrc: Final[Any] = _compiled.bdtrc
#: Inverses of the beta, chi-square, normal and Student's t distributions.
betaincinv: Final[Any] = _compiled.betaincinv
chdtri: Final[Any] = _compiled.chdtri
ndtri: Final[Any] = _compiled.ndtri
stdtrit: Final[Any] = _compiled.stdtrit
#: Student's t distribution.
stdtr: Final[Any] = _compiled.stdtr
