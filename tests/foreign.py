"""An external program for tests: it prints the times of its plan. A shell starts soonest."""

from dataclasses import dataclass
from pathlib import Path

_SCRIPT = """#!/bin/sh
n=$2
if [ "$1" = - ]; then words=$(wc -w); else words=$(wc -w < "$1"); fi
if [ -n "$3" ] && [ -e "$3" ]; then
    words=1  # the rest is in the file
    echo "read ${{3##*/}}" >&2
elif [ -n "$3" ]; then
    echo "$words" > "$3"
fi
{hang}
[ "$n" -gt {most} ] && n={most}
i=0
while [ $i -lt "$n" ]; do printf '%s ' {says}; i=$((i + 1)); done
steps=$((n - 1)) prompt={prompt_us}
total=$((prompt + steps * {step_us} + {handoff_us}))
{prints}
exit {status}
"""
#: How its times are read.
KEYS = {
    key: key
    for key in ("prompt_tokens", "prompt_us", "generated_tokens", "generated_us", "total_us")
}
_PRINTS = (
    'echo "{\\"prompt_tokens\\": $words, \\"prompt_us\\": $prompt, \\"generated_tokens\\": $steps, '
    '\\"generated_us\\": $((steps * STEP)), \\"total_us\\": $total}" >&2'
)


@dataclass(frozen=True)
class Plan:
    """The work of a program.

    Attributes:
        prompt_us: time of the prompt; `$words` are its tokens.
        most: tokens that it generates at most.
        hang: file that it writes its process's number to before it hangs.
        prints: its output instead of its times.
    """

    prompt_us: str = "$words"
    step_us: int = 10
    handoff_us: int = 0
    most: int = 1000
    says: str = "ab"
    prints: str = ""
    status: int = 0
    hang: str = ""


def foreign_program(path: Path, plan: Plan) -> Path:
    """Write a program: `path FILE|- N_TOKENS [HANDOVER]`; a token is a word."""
    path.write_text(
        _SCRIPT.format(
            prompt_us=f"$(({plan.prompt_us}))",
            step_us=plan.step_us,
            handoff_us=plan.handoff_us,
            most=plan.most,
            says=plan.says,
            status=plan.status,
            prints=f"printf '{plan.prints}' >&2" if plan.prints
            else _PRINTS.replace("STEP", str(plan.step_us)),
            hang=f"echo $$ > '{plan.hang}'; exec sleep 3600" if plan.hang else "",
        )
    )  # fmt: skip
    path.chmod(0o755)
    return path
