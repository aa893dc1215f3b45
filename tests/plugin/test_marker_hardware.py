from tests.plugin.conftest import Project, marked

MARKED = marked().replace("{}", "hardware({})")


def test_elsewhere_a_test_is_skipped(project: Project) -> None:
    """The reason has the condition and the actual machine, at the test's own line."""
    reasons = {
        '"m1"': "needs m1, this is m2ultra-76",
        '"m1", "m4max-40"': "needs m1 or m4max-40, this is m2ultra-76",
        "min_memory_gb=1000": "needs 1000 GB of memory, m2ultra-76 has *",
        "min_cpu_cores=100": "needs 100 CPU cores, m2ultra-76 has 24",
        '"m2ultra-76", min_gpu_cores=77': "needs 77 GPU cores, m2ultra-76 has 76",
    }
    project.claims(MARKED, reasons)
    result = project.run("--asperf-hardware=m2ultra-76", "-rs")
    result.assert_outcomes(skipped=len(reasons))
    lines = range(3, 3 + 4 * len(reasons), 4)
    skips = [
        f"SKIPPED [[]1[]] test_it.py:{line}: {reason}"
        for line, reason in zip(lines, reasons.values(), strict=True)
    ]
    result.stdout.fnmatch_lines_random(skips)


def test_where_it_is_met_a_test_runs(project: Project) -> None:
    """Any of the names will do, and all of the minima have to."""
    met = ['"m2ultra-76"', '"m1", "m2ultra-76"', "min_memory_gb=64, min_gpu_cores=60"]
    project.claims(MARKED, met)
    project.run("--asperf-hardware=m2ultra-76").assert_outcomes(passed=len(met))


def test_a_bad_marker_hits_its_own_test_only(project: Project) -> None:
    """Its test is an error."""
    messages = {
        '"m2ultr"': "no hardware profile is called 'm2ultr'; did you mean 'm2ultra'?",
        "": "it has no condition",
    }
    project.rejects(MARKED, messages, "--asperf-hardware=m2ultra-76", in_setup=True)
