"""pytest's options: the key that each overrides, its metavar and its help."""

from __future__ import annotations

from typing import Final

#: By option: the key of `[tool.asperf]` that it overrides, its metavar and help. argparse is given
#: no default, because only what a user typed may override the configuration file.
OPTIONS: Final = {
    "--asperf-hardware": (
        "hardware",
        "NAME|auto",
        "hardware profile to compare numbers with; auto is this machine (default: auto)",
    ),
    "--asperf-engine": (
        "engine",
        "NAME",
        (
            "llama_cpp, llama_tools, mlx, command; or a server: llama_server, llama_cpp_server, "
            "mlx_server, openai (default: llama_cpp)"
        ),
    ),
    "--asperf-source": (
        "source",
        "auto|live|recorded",
        "measure or replay; auto measures where the profile is this machine (default: auto)",
    ),
    "--asperf-inconclusive": (
        "inconclusive",
        "fail|xfail|skip",
        "what becomes of a test that could not be decided (default: fail)",
    ),
    "--asperf-model": (
        "default_model",
        "ADDRESS",
        "model of tests without a marker: name, name:LEVEL or a path (default: asperf-target)",
    ),
    "--asperf-role": (
        "roles",
        "ROLE=ADDRESS",
        "model that has a role in tests, as in target=PATH or draft=NAME:LEVEL; repeatable",
    ),
    "--asperf-findings": (
        "findings_scope",
        "here|all",
        "findings to try: those about this machine and model, or all (default: here)",
    ),
    "--asperf-repetitions": (
        "repetitions",
        "N",
        "repetitions of a throughput workload (default: 10)",
    ),
    "--asperf-chunks": ("chunks", "N|all", "chunks that perplexity is taken over (default: 40)"),
    "--asperf-python": (
        "python",
        "PATH",
        "interpreter that the engine runs in (default: the one that runs pytest)",
    ),
    "--asperf-tools": (
        "tools",
        "PATH",
        "folder of programs, for llama_tools, llama_server and command",
    ),
    "--asperf-remote": (
        "remote",
        "HOST:PORT",
        "llama.cpp RPC server of another machine, for tests that call overhead_on",
    ),
    "--asperf-url": ("url", "URL", "server that the engine openai asks; it must be running"),
    "--asperf-api-key-variable": (
        "api_key_variable",
        "NAME",
        "variable of the environment that holds its key (default: OPENAI_API_KEY)",
    ),
    "--asperf-baseline": (
        "baseline",
        "BUILD",
        "build that a gate compares with: NAME or PATH[,key=value] (default: current)",
    ),
    "--asperf-candidate": ("candidate", "BUILD", "build that a gate judges"),
    "--asperf-tolerance": (
        "tolerance",
        "SHARE",
        "slowdown that a gate accepts; a FAIL shows one near it or above (default: 5%)",
    ),
    "--asperf-max-pairs": ("max_pairs", "N", "pairs after which a gate gives up (default: 120)"),
    "--asperf-max-seconds": (
        "max_seconds",
        "S",
        "seconds of a gate, all its cells together, after which it gives up (default: 300)",
    ),
    "--asperf-max-cv": (
        "max_cv",
        "SHARE",
        "runs that vary more (sd / mean) decide no limit within twice their spread (default: 15%)",
    ),
    "--asperf-seed": ("seed", "N", "seed of every random order (default: drawn, and printed)"),
    "--asperf-self-check": (
        "self_check",
        "K",
        "compare the baseline with itself before every K-th gate of this machine (default: never)",
    ),
    "--asperf-nice": (
        "nice",
        "N",
        "nice value of engines: -20 puts other work last, 0 leaves it alone (default: -5)",
    ),
    "--asperf-wait": (
        "wait",
        "S",
        "longest wait for one other measurement on this machine, such as 90s (default: 10min)",
    ),
    "--asperf-report": (
        "report",
        "FORMAT:PATH",
        "write a report, such as html:FILE, json:FILE, md:FILE or csv:FILE; repeatable",
    ),
    "--asperf-store": (
        "store",
        "PATH|URL",
        "keep the report in a history: an SQLite file, or postgresql://USER@HOST/DATABASE",
    ),
    "--asperf-store-keep": (
        "store_keep",
        "DAYS",
        "remove older sessions, except those that a state is based on (default: never)",
    ),
    "--asperf-machine-timeout": (
        "machine_timeout",
        "S",
        "longest time of one machine of a fleet, such as 30min (default: no limit)",
    ),
}
