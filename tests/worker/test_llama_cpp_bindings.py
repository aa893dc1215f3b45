"""The functions of llama-cpp-python without its classes."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.copied_build import copied_build

pytestmark = pytest.mark.live

_ALONE = """
import os, sys
os.environ["OPENBLAS_NUM_THREADS"] = "7"
from pytest_asperf.worker import llama_cpp_engine
from pytest_asperf.worker.llama_cpp_bindings import GGML, llama_cpp, llama_cpp_version
assert "numpy" in sys.modules
assert sys.platform != "linux" or len(os.listdir("/proc/self/task")) == 1, "BLAS has threads"
assert "llama_cpp.llama" not in sys.modules, "the classes are imported too"
assert os.environ["OPENBLAS_NUM_THREADS"] == "7"
import llama_cpp as package
assert package.llama_cpp is llama_cpp
assert package.llama_cpp._lib is GGML
assert package.__version__ == llama_cpp_version
assert package.Llama
"""
_REPLACED = """
import llama_cpp as package
package.llama_decode = replaced = lambda context, batch: 1
from pytest_asperf.worker.llama_cpp_bindings import llama_cpp
assert llama_cpp.llama_decode is replaced
"""


@pytest.mark.parametrize("code", [_ALONE, _REPLACED], ids=["alone", "replaced"])
def test_the_functions_are_those_of_the_package(code: str) -> None:
    """Alone they bring no classes, and functions that an interpreter replaced stay replaced."""
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)


_COPIED = """
import ctypes, sys
from pytest_asperf.worker.llama_cpp_bindings import load_own_parts
load_own_parts(sys.argv[1])
print(ctypes.CDLL(sys.argv[1] + "/libggml.so").told_again())
"""


def test_a_copied_folder_is_run_with_its_own_libraries(tmp_path: Path) -> None:
    """It was linked in another folder, where the library is of another build by now."""
    command = [sys.executable, "-c", _COPIED, str(copied_build(tmp_path))]
    assert subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout == b"1\n"
