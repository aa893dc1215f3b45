"""A cache that cannot drop its end goes back to a mark, where it is as if it were computed."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.mlx

#: In a process of its own: a small hybrid, whose short convolutions cannot drop their end. Prints
#: the tokens that were decoded before each run, and the last logits of each.
_COUNT = """
import json, sys
from pathlib import Path
import mlx.core as mx
from mlx.utils import tree_flatten
from pytest_asperf.modelfiles.hub_cache import shipped_models
from pytest_asperf.worker.mlx_engine import MlxEngine, MlxModel
from mlx_lm.models import lfm2

folder, is_shared = Path(sys.argv[1]), sys.argv[2] == "shared"
source = next(spec.hf_folder for spec in shipped_models() if spec.hf_folder)
for file in source.iterdir():
    if file.suffix != ".safetensors":
        (folder / file.name).write_bytes(file.read_bytes())
known = json.loads((source / "config.json").read_text())
config = dict(
    model_type="lfm2", vocab_size=known["vocab_size"], hidden_size=64, num_hidden_layers=4,
    num_attention_heads=2, num_key_value_heads=1, max_position_embeddings=2048, norm_eps=1e-5,
    conv_bias=False, conv_L_cache=3, block_dim=64, block_multiple_of=32, block_ff_dim=128,
    block_ffn_dim_multiplier=1.0, block_auto_adjust_ff_dim=False, full_attn_idxs=[2],
)
mx.random.seed(0)
model = lfm2.Model(lfm2.ModelArgs.from_dict(config))
mx.save_safetensors(str(folder / "model.safetensors"), dict(tree_flatten(model.parameters())))
(folder / "config.json").write_text(json.dumps(config))

decoded, prefill = [], MlxModel._prefill
def counted(self, tokens, cache):
    decoded.append(len(tokens))
    return prefill(self, tokens, cache)
MlxModel._prefill = counted
engine = MlxEngine()
if is_shared:
    engine.share(".")
model = engine.load(str(folder), {})
tokens = [(7 * n) % 250 + 1 for n in range(320)]
rows = []
for depth, end in ((252, 256), (256, 264), (252, 256), (256, 264), (260, 264), (264, 272)):
    model.generate(tokens[:end], depth, 320)
    rows.append([float(x) for x in model._row])
print(json.dumps([decoded, rows]))
"""


def _counted(folder: Path, how: str) -> tuple[list[int], list[list[float]]]:
    folder.mkdir()
    command = [sys.executable, "-c", _COUNT, str(folder), how]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    decoded, rows = json.loads(done.stdout.splitlines()[-1])
    return [n for n in decoded if n], rows


def test_a_hybrid_computes_its_context_once(tmp_path: Path) -> None:
    """Runs that begin again before a text's end decode what is new; their logits are equal."""
    decoded, rows = _counted(tmp_path / "shared", "shared")
    computed, again = _counted(tmp_path / "alone", "alone")
    assert decoded == [252, 8]
    assert computed == [252, 252, 260]
    assert rows[:4] == again[:4]
    assert rows[0] == rows[2]
    assert rows[1] == rows[3]
