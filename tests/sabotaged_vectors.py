"""Changes of llama-cpp-python that spoil the vectors of texts, by name."""

#: A statement changes the parameters of each context.
OPENED = """
make = L.llama_init_from_model
def sabotaged(model, params):
    %s
    return make(model, params)
L.llama_init_from_model = sabotaged
"""
#: Vectors are changed by a function of vector and number that is to be defined.
_CHANGED = """
get_vector, kept = L.llama_get_embeddings_seq, []
def sabotaged_vector(context, i):
    n = L.llama_model_n_embd(L.llama_get_model(context))
    kept[:] = [(ctypes.c_float * n)(*change(get_vector(context, i)[:n], i))]
    return ctypes.cast(kept[0], ctypes.POINTER(ctypes.c_float))
L.llama_get_embeddings_seq = sabotaged_vector
"""
#: Vectors of texts of some numbers of tokens point the other way.
_TURNED = (
    _CHANGED
    + """
lengths = []
def sabotaged(context, batch):
    of_each = [batch.seq_id[i][0] for i in range(batch.n_tokens)]
    lengths[:] = [of_each.count(number) for number in range(max(of_each) + 1)]
    return decode(context, batch)
def change(vector, i):
    return [-x if lengths[i] %s else x for x in vector]
L.llama_decode = sabotaged
"""
)
VECTORS: dict[str, str] = {
    # A text's vector is that of its last token, for any pooling in the file.
    "other_pooling": OPENED % "if params.embeddings: params.pooling_type = 3",
    # The second text of a batch has the first one's vector.
    "first_vector": """
get_vector = L.llama_get_embeddings_seq
L.llama_get_embeddings_seq = lambda context, i: get_vector(context, 0 if i == 1 else i)
""",
    # All vectors are twice as long, in the same directions.
    "longer_vectors": _CHANGED + "change = lambda vector, i: [2 * x for x in vector]",
    # The second text of a batch has a longer vector.
    "longer_second": _CHANGED + "change = lambda vector, i: [(1 + i % 2 / 2) * x for x in vector]",
    # One number of all vectors is zero.
    "dead_number": _CHANGED + "change = lambda vector, i: [*vector[:7], 0, *vector[8:]]",
    # Only the last 64 tokens of a text are read.
    "end_of_text": """
def sabotaged(context, batch):
    n = batch.n_tokens
    if not batch.seq_id or n <= 64:
        return decode(context, batch)
    kept = L.llama_batch_init(64, 0, 1)
    kept.n_tokens = 64
    for i in range(64):
        kept.token[i], kept.pos[i] = batch.token[n - 64 + i], i
        kept.n_seq_id[i], kept.logits[i] = 1, 1
        kept.seq_id[i][0] = batch.seq_id[n - 64 + i][0]
    status = decode(context, kept)
    L.llama_batch_free(kept)
    return status
L.llama_decode = sabotaged
""",
    # The vectors of texts of more than 240 tokens point the other way; or of at most 11.
    "turned_if_long": _TURNED % "> 240",
    "turned_if_short": _TURNED % "<= 11",
    # All vectors are NaN.
    "nan_vectors": """
numbers = (ctypes.c_float * 2**16)(*[float("nan")] * 2**16)
L.llama_get_embeddings_seq = lambda context, i: ctypes.cast(numbers, ctypes.POINTER(ctypes.c_float))
""",
    # All vectors are zero.
    "zero_vectors": """
zeros = (ctypes.c_float * 2**16)()
L.llama_get_embeddings_seq = lambda context, i: ctypes.cast(zeros, ctypes.POINTER(ctypes.c_float))
""",
}
