"""mlx-lm without Hugging Face's libraries, and a tokenizer without transformers."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from pytest_asperf.modelfiles.hub_cache import shipped_models

pytestmark = pytest.mark.usefixtures("mlx")

_FOLDER = shipped_models()[0].hf_folder or Path()
_ALONE = """
import sys
from pathlib import Path
from pytest_asperf.worker import mlx_engine
assert not {"huggingface_hub", "transformers", "mlx_lm.tokenizer_utils"} & set(sys.modules)
from pytest_asperf.worker.mlx_lm_library import mlx_lm, mlx_lm_generate
import mlx_lm.tokenizer_utils as real, transformers
wrapper = mlx_lm_generate.TokenizerWrapper
tokenizer = mlx_lm.utils.load_tokenizer(Path(sys.argv[1]))
assert wrapper is not real.TokenizerWrapper
assert type(tokenizer) is real.TokenizerWrapper
assert isinstance(tokenizer, wrapper) and not isinstance(1, wrapper)
assert type(wrapper(tokenizer._tokenizer)) is real.TokenizerWrapper
assert wrapper.detokenizer is real.TokenizerWrapper.detokenizer
"""
_REPLACED = """
import mlx_lm.utils
mlx_lm.utils.load_model = replaced = lambda folder: 1
import transformers
from pytest_asperf.worker.mlx_lm_library import mlx_lm as library
assert library is mlx_lm and library.utils.load_model is replaced
"""
#: A version that uses a name while it is imported.
_AT_ONCE = """
import sys
from pathlib import Path
for name, text in {
    "transformers/__init__": "class AutoTokenizer:\\n    register = 1",
    "mlx_lm/__init__": "import mlx_lm.generate, mlx_lm.models.cache\\nfrom .used import used",
    "mlx_lm/used": "import transformers\\nused = transformers.AutoTokenizer.register",
    "mlx_lm/generate": "",
    "mlx_lm/models/__init__": "",
    "mlx_lm/models/cache": "",
}.items():
    path = Path(f"{name}.py")
    path.parent.mkdir(exist_ok=True)
    path.write_text(text)
sys.path.insert(0, str(Path.cwd()))
from pytest_asperf.worker.mlx_lm_library import mlx_lm
import transformers
assert mlx_lm.used is transformers.AutoTokenizer.register == 1
"""


@pytest.mark.parametrize(
    "code", [_ALONE, _REPLACED, _AT_ONCE], ids=["alone", "replaced", "at_once"]
)
def test_it_is_mlx_lm(tmp_path: Path, environment: dict[str, str], code: str) -> None:
    """Names come with their first use, replaced functions stay, and a version may need all."""
    subprocess.run(
        [
            sys.executable,
            "-c",
            code,
            str(_FOLDER),
        ],
        check=True,
        cwd=tmp_path,
        env=environment,
        timeout=60,
    )


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {
            "truncation": {
                "direction": "Right",
                "max_length": 3,
                "strategy": "LongestFirst",
                "stride": 0,
            },
            "padding": {
                "strategy": {"Fixed": 40},
                "direction": "Right",
                "pad_to_multiple_of": None,
                "pad_id": 0,
                "pad_type_id": 0,
                "pad_token": "<|bos|>",
            },
            "post_processor": {
                "type": "TemplateProcessing",
                "single": [
                    {"SpecialToken": {"id": "<|bos|>", "type_id": 0}},
                    {"Sequence": {"id": "A", "type_id": 0}},
                ],
                "pair": [{"Sequence": {"id": "A", "type_id": 0}}],
                "special_tokens": {"<|bos|>": {"id": "<|bos|>", "ids": [0], "tokens": ["<|bos|>"]}},
            },
        },
    ],
    ids=["as_shipped", "of_a_pipeline"],
)
def test_a_bare_tokenizer_is_that_of_transformers(tmp_path: Path, changes: dict[str, Any]) -> None:
    """The tokens, vocabulary and BOS of a `tokenizer.json`, which may have a pipeline's steps."""
    from transformers import PreTrainedTokenizerFast

    from pytest_asperf.worker.mlx_tokenizer import BareTokenizer

    content = json.loads((_FOLDER / "tokenizer.json").read_text("utf-8"))
    assert changes.keys() <= content.keys()
    (file := tmp_path / "tokenizer.json").write_text(json.dumps(content | changes), "utf-8")
    bare, whole = BareTokenizer(file), PreTrainedTokenizerFast(tokenizer_file=str(file))
    for text in ("", "a", "def f(x):\n    return x\n", "<|bos|>x <|bos|>", "é ☃ 12345 " * 20):
        for special in (False, True):
            ids = bare.encode(text, add_special_tokens=special)
            assert ids == whole.encode(text, add_special_tokens=special)
    assert bare.get_vocab() == whole.get_vocab()
    assert bare.bos_token_id is whole.bos_token_id is None
