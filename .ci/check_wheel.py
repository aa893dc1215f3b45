"""Check a wheel against git: `check_wheel.py WHEEL` passes if it holds every tracked file."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from pathlib import Path

PACKAGE = "pytest_asperf"
MAX_MIB = 25.0  # the shipped models pack to 22 MiB, the code to next to nothing


def problems(wheel: Path) -> list[str]:
    """Return what is wrong with the wheel, a line each."""
    listed = subprocess.run(
        ["git", "ls-files", "-z", PACKAGE],  # noqa: S607  # whichever git is there
        capture_output=True,
        text=True,
        check=True,
    )
    tracked = {name for name in listed.stdout.split("\0") if name}
    with zipfile.ZipFile(wheel) as archive:
        held = set(archive.namelist())
    packed = {name for name in held if name.startswith(f"{PACKAGE}/")}
    found = [f"missing: {name}" for name in sorted(tracked - packed)]
    found += [f"not in git: {name}" for name in sorted(packed - tracked)]
    if not any(name.endswith(".dist-info/licenses/LICENSE") for name in held):
        found.append("missing: the licence")
    size_mib = wheel.stat().st_size / 2**20
    if size_mib > MAX_MIB:
        found.append(f"{size_mib:.1f} MiB; at most {MAX_MIB:g}")
    return found


def main(wheel: Path) -> int:
    """Print what is wrong with the wheel, or its size; return 1 if anything is."""
    found = problems(wheel)
    print("\n".join(found) or f"{wheel.name}: {wheel.stat().st_size / 2**20:.1f} MiB, complete")
    return bool(found)


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
