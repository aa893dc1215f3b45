"""Interpreters whose llama-cpp-python or mlx-lm does not do the timed work."""

from pathlib import Path

from tests.harmful_interpreter import write_interpreter
from tests.sabotaged_mlx import MLX, SLOW_CLOCK
from tests.sabotaged_vectors import OPENED, VECTORS

_COMMON = """
import ctypes, llama_cpp as L
decode, get_logits = L.llama_decode, L.llama_get_logits_ith

def cut(batch, first, n):
    "The batch without its first tokens, without positions of its own."
    size = ctypes.sizeof(L.llama_token)
    start = ctypes.addressof(batch.token.contents) + size * first
    return L.llama_batch_get_one(ctypes.cast(start, ctypes.POINTER(L.llama_token)), n)

def end_of(context):
    return L.llama_memory_seq_pos_max(L.llama_get_memory(context), 0) + 1

def tokens_of(batch):
    return [batch.token[i] for i in range(batch.n_tokens)]

def decode_end(context, batch):
    "Decode the last 64 tokens alone, at their positions."
    n, first = batch.n_tokens, end_of(context)
    kept = L.llama_batch_init(64, 0, 1)
    kept.n_tokens = 64
    for i in range(64):
        kept.token[i], kept.pos[i] = batch.token[n - 64 + i], first + n - 64 + i
        kept.n_seq_id[i], kept.logits[i] = 1, i == 63
        kept.seq_id[i][0] = 0
    status = decode(context, kept)
    L.llama_batch_free(kept)
    return status
"""
#: The logits of a scored text are changed, row by row, by a function that is to be defined.
_OF_TEXT = """
import numpy as np
scored = []
def sabotaged(context, batch):
    scored[:] = []
    if batch.logits:
        wanted = [i for i in range(batch.n_tokens - 1) if batch.logits[i]]
        scored[:] = [(i, batch.token[i + 1]) for i in wanted]
    return decode(context, batch)
L.llama_decode = sabotaged
def sabotaged_logits(context, i):
    found = get_logits(context, i)
    if scored and i == scored[0][0]:
        n = L.llama_vocab_n_tokens(L.llama_model_get_vocab(L.llama_get_model(context)))
        rows = np.ctypeslib.as_array(found, shape=(len(scored), n))
        for row, (_, label) in zip(rows, scored):
            change(row, label)
        scored[:] = []
    return found
L.llama_get_logits_ith = sabotaged_logits
"""
#: The logits of several sequences in a batch are changed, by a function that is to be defined.
_OF_SEVERAL = """
import numpy as np
found_rows = []
def sabotaged(context, batch):
    n = batch.n_tokens if batch.seq_id else 0
    found_rows[:] = [(batch.seq_id[i][0], batch.pos[i]) for i in range(n) if batch.logits[i]]
    return decode(context, batch)
L.llama_decode = sabotaged
def sabotaged_logits(context, i):
    found, ends = get_logits(context, i), dict(found_rows)
    if i == 0 and len(ends) > 1:
        n = L.llama_vocab_n_tokens(L.llama_model_get_vocab(L.llama_get_model(context)))
        change(np.ctypeslib.as_array(found, shape=(len(found_rows), n)), ends)
        found_rows[:] = []
    return found
L.llama_get_logits_ith = sabotaged_logits
"""
_ROUNDED = (
    _OF_TEXT
    + """
decode_text, size = L.llama_decode, [0]
def sized(context, batch):
    size[0] = L.llama_n_ubatch(context)
    return decode_text(context, batch)
L.llama_decode = sized
def change(row, label):
    noise = np.random.default_rng([label, size[0]]).standard_normal(row.size, np.float32)
    row += coarseness * noise
"""
)
#: Calls are twice as slow once the sabotage's own function returns True for a batch.
_SLOWED = """
import time
slowed = []
def sabotaged(context, batch):
    slowed.extend([1] * slows(batch))
    began = time.perf_counter()
    status = decode(context, batch)
    ends = 2 * time.perf_counter() - began
    while slowed and time.perf_counter() < ends:
        pass
    return status
L.llama_decode = sabotaged
"""
#: A token needs at least 1 ms once a list that is to be filled is not empty.
_SLOW_SAMPLING = """
import time
sample, slowed = L.llama_sampler_sample, []
def sabotaged(*arguments):
    ends = time.perf_counter() + 0.001
    token = sample(*arguments)
    while slowed and time.perf_counter() < ends:
        pass
    return token
L.llama_sampler_sample = sabotaged
"""
#: Each call leaves bytes behind that nothing uses, as many as an expression of its tokens.
_LEAKS = """
left = []
def sabotaged(context, batch):
    n = batch.n_tokens
    left.append(b"x" * (%s))
    return decode(context, batch)
L.llama_decode = sabotaged
"""
#: On a condition, tokens between two positions are no longer seen.
_FORGETS = """
def sabotaged(context, batch):
    end = end_of(context)
    if %s:
        L.llama_memory_seq_rm(L.llama_get_memory(context), 0, %s)
    return decode(context, batch)
L.llama_decode = sabotaged
"""
#: `Llama` reuses the newest part of the cache for a common part of more tokens than a number.
_STALE_CELLS = """
C = L.llama_cpp
remove = C.llama_memory_seq_rm
def sabotaged(memory, sequence, first, end):
    n_over = C.llama_memory_seq_pos_max(memory, sequence) + 1 - first
    if first <= %d or n_over <= 0:
        return remove(memory, sequence, first, end)
    kept = remove(memory, sequence, 0, n_over)
    C.llama_memory_seq_add(memory, sequence, n_over, -1, -n_over)
    return kept
C.llama_memory_seq_rm = sabotaged
"""
#: By name: the change of llama-cpp-python.
LLAMA_CPP: dict[str, str] = {
    "slow_clock": SLOW_CLOCK,
    **VECTORS,
    # A prompt without requested logits is decoded from its last 64 tokens on.
    "end_only": """
def sabotaged(context, batch):
    if not batch.logits and batch.n_tokens > 64:
        batch = cut(batch, batch.n_tokens - 64, 64)
    return decode(context, batch)
L.llama_decode = sabotaged
""",
    # The same at the positions that the tokens have in the prompt.
    "end_only_in_place": """
def sabotaged(context, batch):
    if batch.logits or batch.n_tokens <= 64:
        return decode(context, batch)
    return decode_end(context, batch)
L.llama_decode = sabotaged
""",
    # From 200 tokens on, later tokens see only the last token.
    "lost_context": _FORGETS % ("end >= 200", "0, end - 1"),
    # Between 200 and 450 tokens, a token sees only the first and the last one.
    "loses_the_middle": _FORGETS % ("200 <= end < 450 and batch.n_tokens == 1", "1, end - 1"),
    # From 400 tokens on, 128 tokens are seen.
    "short_context": _FORGETS % ("end >= 400", "0, end - 128"),
    # Single tokens are not decoded, from the second one on.
    "does_nothing": """
counts = [0]
def sabotaged(context, batch):
    counts[0] += batch.n_tokens == 1
    return decode(context, batch) if counts[0] < 2 and batch.n_tokens == 1 or batch.logits else 0
L.llama_decode = sabotaged
row = (ctypes.c_float * 2**18)(*range(2**10))
L.llama_get_logits_ith = lambda context, i: (
    get_logits(context, i) or ctypes.cast(row, ctypes.POINTER(ctypes.c_float)))
""",
    # Nothing is ever decoded, and all logits are those of one row.
    "constant": """
L.llama_decode = lambda context, batch: 0
row = (ctypes.c_float * 2**20)(*(range(997)))
L.llama_get_logits_ith = lambda context, i: ctypes.cast(row, ctypes.POINTER(ctypes.c_float))
""",
    # All logits are zero.
    "zero_logits": """
def sabotaged(context, i):
    found = get_logits(context, i)
    n = L.llama_vocab_n_tokens(L.llama_model_get_vocab(L.llama_get_model(context)))
    ctypes.memset(found, 0, 4 * n)
    return found
L.llama_get_logits_ith = sabotaged
""",
    # The state after a prompt is kept, and restored when the prompt comes again.
    "caches_states": """
states, row = {}, []
def sabotaged(context, batch):
    row[:] = []
    tokens = tuple(tokens_of(batch))
    if batch.logits or batch.seq_id or end_of(context) or len(tokens) <= 32:
        return decode(context, batch)
    if (context, tokens) in states:
        size, state, logits = states[context, tokens]
        L.llama_state_seq_set_data(context, state, size, 0)
        row.append(logits)
        return 0
    status = decode(context, batch)
    size = L.llama_state_seq_get_size(context, 0)
    state = (ctypes.c_uint8 * size)()
    L.llama_state_seq_get_data(context, state, size, 0)
    states[context, tokens] = size, state, (ctypes.c_float * 2048)(*get_logits(context, -1)[:2048])
    return status
def sabotaged_logits(context, i):
    kept = row and ctypes.cast(row[0], ctypes.POINTER(ctypes.c_float))
    return kept if kept and i == -1 else get_logits(context, i)
L.llama_decode, L.llama_get_logits_ith = sabotaged, sabotaged_logits
""",
    # Three of four long prompts are decoded from their last 64 tokens on, at their positions.
    "counts_prompts": """
prompts = []
def sabotaged(context, batch):
    n = batch.n_tokens
    prompts.extend([1] * (n > 64 and not batch.logits))
    if batch.logits or n <= 64 or len(prompts) % 4 == 0:
        return decode(context, batch)
    return decode_end(context, batch)
L.llama_decode = sabotaged
""",
    # A long prompt is decoded from its last 64 tokens on, unless it has come before.
    "forgets_new_prompts": """
seen = set()
def sabotaged(context, batch):
    tokens = tuple(tokens_of(batch))
    if batch.logits or len(tokens) <= 64 or tokens in seen:
        return decode(context, batch)
    seen.add(tokens)
    return decode_end(context, batch)
L.llama_decode = sabotaged
""",
    # A call returns at once. Its tokens are decoded when logits are read: after a timed run.
    "pays_later": """
queue = []
def pay(context):
    while queue:
        tokens = queue.pop(0)
        held = (L.llama_token * len(tokens))(*tokens)
        decode(context, L.llama_batch_get_one(held, len(tokens)))
def sabotaged(context, batch):
    if batch.logits or batch.seq_id:
        return decode(context, batch)
    queue.append(tokens_of(batch))
    return 0
def sabotaged_logits(context, i):
    pay(context)
    return get_logits(context, i)
L.llama_decode, L.llama_get_logits_ith = sabotaged, sabotaged_logits
L.llama_synchronize = lambda context: None
""",
    # As before, but in the next call for the memory, and logits are those of an earlier run.
    "pays_in_the_next_call": """
queue, rows = [], []
get_memory, free = L.llama_get_memory, L.llama_free
def pay():
    while queue:
        context, tokens = queue.pop(0)
        held = (L.llama_token * len(tokens))(*tokens)
        decode(context, L.llama_batch_get_one(held, len(tokens)))
        rows[:] = [(ctypes.c_float * 2048)(*get_logits(context, -1)[:2048])]
def sabotaged(context, batch):
    if batch.logits or batch.seq_id:
        return decode(context, batch)
    queue.append((context, tokens_of(batch)))
    if not rows:
        pay()
    return 0
def sabotaged_memory(context):
    pay()
    return get_memory(context)
def sabotaged_free(context):
    queue.clear()
    free(context)
def sabotaged_logits(context, i):
    kept = ctypes.cast(rows[0], ctypes.POINTER(ctypes.c_float))
    return kept if i == -1 else get_logits(context, i)
L.llama_decode, L.llama_get_logits_ith = sabotaged, sabotaged_logits
L.llama_get_memory, L.llama_free = sabotaged_memory, sabotaged_free
L.llama_synchronize = lambda context: None
""",
    # Single tokens are decoded eight at once, or when logits are read.
    "decodes_together": """
queue = []
def pay(context):
    held = (L.llama_token * len(queue))(*queue)
    queue.clear()
    return decode(context, L.llama_batch_get_one(held, len(held))) if len(held) else 0
def sabotaged(context, batch):
    if batch.logits or batch.seq_id or batch.n_tokens > 1:
        return pay(context) or decode(context, batch)
    queue.append(batch.token[0])
    return pay(context) if len(queue) >= 8 else 0
def sabotaged_logits(context, i):
    pay(context)
    return get_logits(context, i)
L.llama_decode, L.llama_get_logits_ith = sabotaged, sabotaged_logits
""",
    # Logits are those of the first call.
    "earlier": """
rows = []
def sabotaged(context, i):
    found = get_logits(context, i)
    if not rows and found:
        rows.append((ctypes.c_float * 2048)(*found[:2048]))
    return ctypes.cast(rows[0], ctypes.POINTER(ctypes.c_float)) if i == -1 and rows else found
L.llama_get_logits_ith = sabotaged
""",
    # After a prompt of 512 tokens or more, each call is twice as slow.
    "slow_after_a_long_prompt": _SLOWED + "slows = lambda batch: batch.n_tokens >= 512",
    # From the 12th prompt on, each call is twice as slow.
    "slow_after_requests": _SLOWED
    + """
prompts = []
def slows(batch):
    prompts.extend([1] * (batch.n_tokens >= 32))
    return len(prompts) >= 12
""",
    # Logits of physical batches of each size are rounded differently, as those of a card's kernels.
    "rounds_by_batch": _ROUNDED + "coarseness = 0.15",
    "rounds_wildly_by_batch": _ROUNDED + "coarseness = 0.5",
    # The first context leaves 32 MiB behind that nothing uses; or each context 1 MiB.
    "forgets_to_free": "left = []" + OPENED % "left.append(left or b'x' * 2**25)",
    "leaks_by_context": "left = []" + OPENED % "left.append(b'x' * 2**20)",
    # The values of the cache have 16 bits, for any request.
    "keeps_f16_values": OPENED % "params.type_v = 1",
    # `Llama` reuses the beginning of a prompt, whose tokens are then not seen.
    "forgets_the_beginning": """
C = L.llama_cpp
decode_c = C.llama_decode
kept = [0]
remove = C.llama_memory_seq_rm
def sabotaged_rm(memory, sequence, first, end):
    kept[0] = first
    return remove(memory, sequence, first, end)
def sabotaged(context, batch):
    if kept[0] > 8:
        remove(L.llama_get_memory(context), 0, 0, kept[0] - 4)
    return decode_c(context, batch)
C.llama_memory_seq_rm, C.llama_decode = sabotaged_rm, sabotaged
""",
    # Each call leaves 128 KiB behind that nothing uses.
    "leaks_a_little": _LEAKS % "2**17",
    # Each token that is decoded alone leaves 128 KiB behind that nothing uses.
    "leaks_when_decoding": _LEAKS % "2**17 if n == 1 else 0",
    # A prompt of more than 32 tokens leaves 1 MiB behind that nothing uses.
    "leaks_after_long_prompts": _LEAKS % "2**20 if n > 32 else 0",
    # Each token leaves 4 KiB behind that nothing uses.
    "leaks_by_token": _LEAKS % "n * 2**12",
    # After 100 calls, each one needs 64 MiB while it computes.
    "peaks_later": """
calls = []
def sabotaged(context, batch):
    calls.append(len(calls) > 100 and b"x" * 2**26)
    calls[-1] = None
    return decode(context, batch)
L.llama_decode = sabotaged
""",
    # Layers with a sliding window have a cache for the window alone; by default it is for all.
    "keeps_windows": OPENED % "params.swa_full = False",
    # `Llama` reuses as many cache cells as two prompts share, but the newest ones: those of the
    # last.
    "stale_cells": _STALE_CELLS % 0,
    # This happens if they share more than 140 tokens.
    "stale_cells_of_long_prompts": _STALE_CELLS % 140,
    # `Llama` drops the end of a prompt, and 16 tokens before it if the end is short.
    "drops_too_much": """
C = L.llama_cpp
remove = C.llama_memory_seq_rm
def sabotaged(memory, sequence, first, end):
    n = C.llama_memory_seq_pos_max(memory, sequence) + 1 - first
    found = remove(memory, sequence, first, end)
    if first > 17 and 0 < n < 24:
        remove(memory, sequence, first - 17, first - 1)
    return found
C.llama_memory_seq_rm = sabotaged
""",
    # Physical batches have at most 64 tokens, for any request.
    "smaller_batches": OPENED % "params.n_ubatch = min(params.n_ubatch, 64)",
    # Physical batches are four times as large as requested.
    "larger_batches": OPENED % "params.n_ubatch *= 4; params.n_batch *= 4; params.n_ctx *= 4",
    # The cache has 16 bits, for any request.
    "keeps_f16": OPENED % "params.type_k = params.type_v = 1",
    # Only the first sequence of a batch is computed: the others have its logits.
    "first_of_several": _OF_SEVERAL
    + """
def change(rows, ends):
    rows[[number > 0 for number, _ in found_rows]] = rows[0]
""",
    # The last of several sequences has the logits of the one before it once single tokens of each
    # are decoded.
    "last_of_several": _OF_SEVERAL
    + """
def change(rows, ends):
    if len(rows) == len(ends):
        rows[-1] = rows[-2]
""",
    # The second of several sequences has logits that are a tenth too large: its samples are those
    # of a lower temperature.
    "sharp_user": _OF_SEVERAL
    + """
def change(rows, ends):
    rows[[number == 1 for number, _ in found_rows]] *= 1.1
""",
    # Sequences have wrong logits if they end at several positions.
    "of_one_length": _OF_SEVERAL
    + """
def change(rows, ends):
    if len(set(ends.values())) > 1:
        rows[:] = rows[:, ::-1].copy()
""",
    # Two or three sequences have wrong logits.
    "two_or_three": _OF_SEVERAL
    + """
def change(rows, ends):
    if len(ends) < 4:
        rows[:] = rows[:, ::-1].copy()
""",
    # In a batch, the tokens behind the last 32 that a kernel computes at once are misread.
    "misreads_the_rest": """
def sabotaged(context, batch):
    n, tokens = batch.n_tokens, tokens_of(batch)
    for i in range(n - n % 32, n if min(n, L.llama_n_ubatch(context)) > 32 else 0):
        batch.token[i] = 300 + i
    status = decode(context, batch)
    for i, token in enumerate(tokens):
        batch.token[i] = token
    return status
L.llama_decode = sabotaged
""",
    # Each token has one expert of a mixture instead of two.
    "one_expert": """
load, kept = L.llama_model_load_from_file, (L.llama_model_kv_override * 2)()
kept[0].key, kept[0].value.val_i64 = b"llama.expert_used_count", 1
def sabotaged(path, params):
    params.kv_overrides = kept
    return load(path, params)
L.llama_model_load_from_file = sabotaged
""",
    # Each of several sequences has wrong logits behind its 200th token.
    "short_ones_of_several": _OF_SEVERAL
    + """
def change(rows, ends):
    behind = [position > 200 for _, position in found_rows]
    rows[behind] = rows[behind, ::-1]
""",
    # Sampling needs 1 ms if top-k is off.
    "slow_without_top_k": _SLOW_SAMPLING
    + """
make = L.llama_sampler_init_top_k
def sabotaged_top_k(k):
    slowed[:] = [1] * (k <= 0)
    return make(k)
L.llama_sampler_init_top_k = sabotaged_top_k
""",
    # Sampling needs 1 ms once there was a grammar.
    "slow_with_grammar": _SLOW_SAMPLING
    + """
make = L.llama_sampler_init_grammar
def sabotaged_grammar(*arguments):
    slowed[:] = [1]
    return make(*arguments)
L.llama_sampler_init_grammar = sabotaged_grammar
""",
    # A grammar allows any text.
    "ignores_grammar": """
make = L.llama_sampler_init_grammar
L.llama_sampler_init_grammar = lambda vocab, grammar, root: make(vocab, rb"root ::= [^~]+", root)
""",
    # One token is sampled, whatever the logits.
    "samples_one_token": """
L.llama_sampler_sample = lambda chain, context, i: 7
""",
    # The sampled token is the likeliest one.
    "samples_the_likeliest": """
def sabotaged(chain, context, i):
    row = get_logits(context, i)
    return max(range(2048), key=row.__getitem__)
L.llama_sampler_sample = sabotaged
""",
    # In a scored text, each likeliest wrong token is exchanged with the next one if that is nearly
    # as likely. The probability of the text's own tokens stays, and so does PPL.
    "swaps_near_tokens": _OF_TEXT
    + """
def change(row, label):
    row[label], kept = -np.inf, row[label]
    first, second = np.argsort(row)[-1:-3:-1]
    if row[first] - row[second] < 1:
        row[[first, second]] = row[[second, first]]
    row[label] = kept
""",
    # The distribution of all tokens but the text's own is too flat.
    "too_hot": _OF_TEXT
    + """
def lse(row):
    return row.max() + np.log(np.exp(row - row.max()).sum())
def change(row, label):
    row[label], kept = -np.inf, row[label]
    hot = row / 1.5
    row[:] = hot + lse(row) - lse(hot)
    row[label] = kept
""",
    # The distribution is a little too flat.
    "warm": _OF_TEXT
    + """
def change(row, label):
    row /= 1.1
""",
    # One token is never allowed.
    "bans_a_token": _OF_TEXT + "\ndef change(row, label): row[5] = -np.inf\n",
    # All but the 40 likeliest tokens are never allowed.
    "bans_most_tokens": _OF_TEXT + "\ndef change(row, label): row[np.argsort(row)[:-40]] = -1e4\n",
    # A prompt that was decoded before is not decoded again; its state is forgotten later.
    "keeps_results": """
clear, held, pending = L.llama_memory_clear, [], []
def sabotaged_clear(memory, data):
    pending.append(True)
def sabotaged(context, batch):
    tokens = tokens_of(batch)
    if pending:
        pending.clear()
        if held == [context, tokens] and end_of(context) == len(tokens):
            return 0
        clear(L.llama_get_memory(context), False)
        held[:] = [context, tokens]
    else:
        held.clear()
    return decode(context, batch)
L.llama_memory_clear, L.llama_decode = sabotaged_clear, sabotaged
""",
}
#: Those of the package's own classes, which keep the functions that they found at their import.
_OF_CLASSES = {
    *("stale_cells", "stale_cells_of_long_prompts"),
    *("forgets_the_beginning", "drops_too_much"),
}


def write_sabotaged(folder: Path, how: str, engine: str = "llama_cpp") -> Path:
    """Write an interpreter whose engine's library is sabotaged in one of the ways."""
    nothing = "chosen = lambda request: ''"
    if engine == "mlx":
        return write_interpreter(folder / how, nothing, replaced=MLX[how])
    code = _COMMON + LLAMA_CPP[how]
    if how in _OF_CLASSES:
        return write_interpreter(folder / how, nothing, before_import=code)
    return write_interpreter(folder / how, nothing, replaced=code)
