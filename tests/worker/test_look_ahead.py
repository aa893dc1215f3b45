"""A chunk that was computed ahead is scored as one that was not."""

import subprocess
import sys
from pathlib import Path

#: In a process of its own, like a worker: a model whose layers are all on a GPU looks ahead.
_SCORE = """
import sys
from pytest_asperf.worker import llama_cpp_engine as module
from pytest_asperf.worker.scoring import ChunkScorer
decoded, decode = [], module.decode_chunk
def counted(context, tokens, first):
    decoded.append(tokens[1])
    return decode(context, tokens, first)
module.decode_chunk = counted
engine = module.LlamaCppEngine()
model = engine.load(sys.argv[1], {"threads": 1})
chunks = [[(start + 7 * n) % 250 + 1 for n in range(64)] for start in range(4)]
def scores(order, following):
    scorer = ChunkScorer(lambda name: model)
    return [
        scorer.score(["m"], chunks[one], 32, 1, chunks[two] if following else ())["m"]["nll"]
        for one, two in order
    ]
plain = scores([(0, 0), (1, 0), (2, 0), (3, 0)], following=False)
model.facts["layers_offloaded"] = model.facts["n_layers"] + 1
del decoded[:]
assert scores([(0, 1), (1, 2), (2, 3), (3, 3)], following=True) == plain
# Each once, and the last once more, ahead in vain.
assert sorted(decoded) == sorted([chunk[1] for chunk in [*chunks, chunks[3]]]), decoded
# Another chunk than foreseen, one after a timed run, and one of another size.
assert scores([(0, 2), (1, 2)], following=True) == plain[:2]
assert model.generate(chunks[0], 56, 64).n_tokens == 8
assert scores([(2, 3)], following=True) == plain[2:3]
assert len(ChunkScorer(lambda name: model).score(["m"], chunks[3][:32], 8, 1)["m"]["nll"]) == 23
assert scores([(3, 0)], following=True) == plain[3:]
model.close()
"""


def test_chunks_computed_ahead_have_the_same_scores(draft_gguf: Path) -> None:
    """In order, out of order, after a timed run and after a chunk of another size."""
    command = [sys.executable, "-c", _SCORE, str(draft_gguf)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
