"""Quantities of speculation: acceptance, gain, speed ratio, break-even, the cost of a batch."""

import json

from tests.plugin.conftest import Project

HEAD = """
@pytest.mark.speculative(draft="asperf-draft:Q4_0", target="asperf-draft:F16", k=2, n_tokens=8,
                         prompts="prompts.json")
def test_it(speculation):
    """
_CLAIMS = {
    "assert speculation.acceptance >= 0.02": (".", "✓ * acceptance by * ≥ 2 %*"),
    'assert speculation.acceptance_of("code") > "99.9%"': ("FI", "* acceptance of code by *"),
    'assert speculation.acceptance_of("text") >= 0.1': ("I", "[?] *of text by *"),
    "assert speculation.verify_cost(3) <= 30": (".", "✓ *C(3) of * ≤ 30*"),
    "assert speculation.gain < '1000%'": (".", "✓ *SD gain * < 1000 %*"),
    "assert speculation.gain > 0.5": ("FI", "* SD gain * > 50 %*"),
    "assert 0.01 < speculation.ratio < 100": (".", "✓ *speed ratio of * to 100x*"),
    "assert speculation.break_even > 0": ("F", "*0 is no limit in x*"),
    'assert speculation.acceptance_of("cod") > 0': (
        "F",
        "unknown category 'cod'; did you mean 'code'[?]*",
    ),
    "assert speculation.verify_cost(99) < 3": ("F", "verify_cost: 99 positions were not timed*"),
    "assert speculation.gain < 3": ("F", "*3 is not a usable limit: it has no unit*"),
    "assert speculation.gain > speculation.gain": ("F", "* is compared with itself*"),
}


def test_speculation_against_limits(live: Project) -> None:
    """Acceptance has an interval over prompts, of which five are needed; C(n) one over pairs."""
    prompts = {
        "code": [f"def area_{n}(width, height):\n    return" for n in range(6)],
        "text": ["# The area is the product of"],
    }
    (live.path / "prompts.json").write_text(json.dumps(prompts))
    live.claims(HEAD, _CLAIMS)
    result = live.run("--asperf-max-pairs=5", "--asperf-seed=3")
    (letters,) = (line.split()[1] for line in result.outlines if line.startswith("test_it.py "))
    for letter, (allowed, line) in zip(letters, _CLAIMS.values(), strict=True):
        assert letter in allowed, result.stdout.str()
        result.stdout.fnmatch_lines([line])
