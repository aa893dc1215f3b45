"""How many threads an engine computes with by default."""

from __future__ import annotations

import os
import platform
import subprocess
from pathlib import Path


def usable_cores() -> int:
    """The logical cores that this process may run on."""
    usable = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return usable or 1


def default_threads() -> int:
    """The threads that llama.cpp's tools use (`common_cpu_get_num_math` in common.cpp).

    The tools count hybrid x86 chips' performance cores by running code on each core; here such a
    chip's cores all count.
    """
    usable = usable_cores()
    if platform.system() == "Darwin":
        for key in ("hw.perflevel0.physicalcpu", "hw.physicalcpu"):
            answer = subprocess.run(
                ["/usr/sbin/sysctl", "-n", key], capture_output=True, text=True, check=False
            )
            if answer.returncode == 0 and answer.stdout.strip().isdigit():
                return int(answer.stdout)
    if platform.machine() in {"x86_64", "AMD64"}:
        return usable
    siblings = Path("/sys/devices/system/cpu").glob("cpu[0-9]*/topology/thread_siblings")
    cores = {path.read_text() for path in siblings}
    return min(len(cores) or usable, usable)
