from pathlib import Path

import pytest

from pytest_asperf.errors import ModelError
from pytest_asperf.measure.feeding import read_prompts


def test_prompts_of_ones_own_are_of_any_length(tmp_path: Path) -> None:
    """Each category's texts are read whole, line ends and all."""
    path = tmp_path / "prompts.json"
    path.write_text('{"code": ["def f():\\n", "x"], "text": ["' + 5000 * "y" + '"]}')
    assert read_prompts(path) == (("code", "def f():\n"), ("code", "x"), ("text", 5000 * "y"))


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        ("{", "it is not JSON"),
        ("[]", "it is not a JSON table"),
        ("{}", "it has no categories"),
        ('{"code": []}', r"code: \[\] is not usable"),
        ('{"code": "def"}', "code: 'def' is not usable"),
        ('{"code": ["def", 3]}', r"code: \['def', 3\] is not usable"),
        ('{"code": [""]}', r"code: \[''\] is not usable"),
    ],
)
def test_a_file_that_holds_something_else_is_refused(
    tmp_path: Path, content: str, problem: str
) -> None:
    """The message names the file and the category, and shows a file's form."""
    path = tmp_path / "prompts.json"
    path.write_text(content)
    with pytest.raises(ModelError, match=rf"prompts\.json: {problem}") as caught:
        read_prompts(path)
    assert "a list of prompts per category" in caught.value.remedy
