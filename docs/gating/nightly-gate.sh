#!/bin/sh
# Gates the newest release against the one that is installed, and keeps the logs of 30 nights.
# Exits as asperf gate does: 0 all PASS, 1 a FAIL, 2 not decided or broken, 3 not usable as typed.
set -u
package=llama-cpp-python # or mlx-lm
python=$HOME/product/venv/bin/python # the environment that you ship from
asperf=$HOME/asperf/bin/asperf # pytest-asperf in an environment of its own
logs=$HOME/Library/Logs/asperf-gate

mkdir -p "$logs"
installed=$("$python" -m pip show "$package" | sed -n 's/^Version: //p')
newest=$("$python" -m pip index versions "$package" | sed -n '1s/.*(\(.*\))/\1/p')
if [ -z "$installed" ] || [ -z "$newest" ]; then
    echo "nightly-gate: no version of $package was found" >&2
    exit 2
fi
if [ "$installed" = "$newest" ]; then
    exit 0
fi
log=$logs/$(date +%Y-%m-%d)
# The environments and the compiled builds are kept in the cache: a version is built once.
caffeinate -is "$asperf" gate "$package==$installed" "$package==$newest" \
    --json "$log.json" --summary "$log.md" > "$log.txt" 2>&1
code=$?
find "$logs" -type f -mtime +30 -delete
if [ "$code" -ne 0 ]; then
    osascript -e "display notification \"exit code $code, see $log.txt\" with title \"asperf gate\""
fi
exit "$code"
