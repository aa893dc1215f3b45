import json
from collections.abc import Callable

from pytest_asperf.audit.result import Audit, FileFindings

HEADER = "machine,target,draft,draft_k,backend,prompt_type,n_drafted,n_accept,eff_tps\n"


def guards_of(found: FileFindings) -> list[str]:
    """Return the names of the guards that tripped."""
    return [guard_finding.guard for _, guard_finding in found.guard_findings]


def test_arms_of_a_table_that_are_one_arm(audit_of: Callable[..., Audit]) -> None:
    """A remote backend that equals the local row in rate and acceptance did not run."""
    rows = "box,T,D,4,local,code,400,100,50.0\nbox,T,D,4,far,code,400,100,50.4\n"
    rows += "box,T,D,4,far,text,400,100,50.4\nbox,T,D,4,near,code,400,100,41.0\n"
    (found,) = audit_of({"sd.csv": HEADER + rows}).files
    assert guards_of(found) == ["identical-to-baseline"]
    assert found.guard_findings[0][0].startswith("box far T D code k=4 and box local")


def test_rows_are_bound_by_the_target_alone(audit_of: Callable[..., Audit]) -> None:
    """Another table of the same machine has the rate without speculation."""
    alone = "machine,model_label,n_prompt,n_gen,avg_tps,stddev_tps\nbox,T,0,128,40,0.2\n"
    rows = "box,T,D,4,local,code,400,10,60.0\nother,T,D,4,local,code,400,10,60.0\n"
    found = audit_of({"alone.csv": alone, "sd.csv": HEADER + rows}).files
    assert guards_of(found[0]) == []
    assert [about for about, _ in found[1].guard_findings] == ["box local T D code k=4"]
    assert guards_of(found[1]) == ["sd-bound"]


def test_spread_of_a_row(audit_of: Callable[..., Audit]) -> None:
    """A deviation of a fifth of the mean is INCONCLUSIVE; a row without figures is named."""
    rows = "model,n_gen,avg_tps,std_tps\nA,128,60,13\nB,128,60,0.3\nC,128,,\n"
    (found,) = audit_of({"t.csv": rows}).files
    assert [about for about, _ in found.guard_findings] == ["tg128 A"]
    assert "C: no figure" in found.notes


def test_results_nested_in_json_are_found(audit_of: Callable[..., Audit]) -> None:
    """Lists of results are found below other keys; numbers that are none are left out."""
    document = {
        "meta": {"author": "x"},
        "phase": {"results": [{"quant": "F16", "tg_tps": 36.5}, {"quant": "X", "tg_tps": "n/a"}]},
    }
    (found,) = audit_of({"r.json": json.dumps(document)}).files
    assert [figure.name for figure in found.figures] == ["F16"]


def test_a_rate_that_counts_the_prompt(audit_of: Callable[..., Audit]) -> None:
    """221 tokens, 20 of them the prompt's, in the total time of the log with the same counts."""
    log = (
        "build: 9000 (0badcafe) with cc\n"
        "encoded   20 tokens in    0.100 seconds, speed:  200.000 t/s\n"
        "decoded  201 tokens in    4.900 seconds, speed:   41.020 t/s\n"
        "n_draft   = 4\nn_predict = 201\nn_drafted = 400\nn_accept  = 100\n"
        "target:\n\ncommon_perf_print:       total time =    5000.00 ms /   221 tokens\n"
    )
    rows = "box,T,D,4,local,code,400,100,44.2\nbox,T,D,4,local,text,400,100,40.2\n"
    found = audit_of({"sd.csv": HEADER + rows, "log.txt": log})
    (counts,) = found.together
    assert guards_of(counts) == ["token-accounting"]
    assert counts.guard_findings[0][0] == "box local T D code k=4 and log.txt"
