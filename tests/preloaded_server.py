"""llama.cpp's llama-server, with a library before its own that does one kind of harm."""

import subprocess
from pathlib import Path

_COMMON = """
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <time.h>
static double now(clockid_t clock) {
    struct timespec t;
    clock_gettime(clock, &t);
    return t.tv_sec + 1e-9 * t.tv_nsec;
}
"""
#: By name: the change of llama.cpp's libraries.
_HARM = {
    "none": "",
    # As many cache cells are reused as two prompts share, but the newest ones: those of the last
    # prompt.
    "stale_cells": """
int32_t llama_memory_seq_pos_max(void * memory, int32_t sequence);
void llama_memory_seq_add(void * memory, int32_t sequence, int32_t p0, int32_t p1, int32_t by);
bool llama_memory_seq_rm(void * memory, int32_t sequence, int32_t first, int32_t end) {
    bool (*remove)(void *, int32_t, int32_t, int32_t) = dlsym(RTLD_NEXT, __func__);
    int32_t n_over = llama_memory_seq_pos_max(memory, sequence) + 1 - first;
    if (first <= 0 || n_over <= 0) return remove(memory, sequence, first, end);
    bool kept = remove(memory, sequence, 0, n_over);
    llama_memory_seq_add(memory, sequence, n_over, -1, -n_over);
    return kept;
}
""",
    # After a graph of 60 ms of CPU time, such as one of 512 tokens, each is twice as slow.
    "slow_after_a_long_prompt": """
int ggml_backend_sched_graph_compute_async(void * scheduler, void * graph) {
    int (*compute)(void *, void *) = dlsym(RTLD_NEXT, __func__);
    static bool slowed;
    double began = now(CLOCK_MONOTONIC), cpu_began = now(CLOCK_PROCESS_CPUTIME_ID);
    int status = compute(scheduler, graph);
    double end = 2 * now(CLOCK_MONOTONIC) - began;
    while (slowed && now(CLOCK_MONOTONIC) < end) { }
    slowed |= now(CLOCK_PROCESS_CPUTIME_ID) - cpu_began > 0.06;
    return status;
}
""",
    # With top-k off, sampling takes 2 ms more.
    "slow_without_top_k": """
static bool is_off;
void * llama_sampler_init_top_k(int32_t k) {
    void * (*make)(int32_t) = dlsym(RTLD_NEXT, __func__);
    is_off = k <= 0;
    return make(k);
}
void llama_sampler_apply(void * sampler, void * candidates) {
    void (*apply)(void *, void *) = dlsym(RTLD_NEXT, __func__);
    double end = now(CLOCK_MONOTONIC) + 0.002;
    apply(sampler, candidates);
    while (is_off && now(CLOCK_MONOTONIC) < end) { }
}
""",
    # A grammar allows any text.
    "ignores_grammar": """
void * llama_sampler_init_grammar(void * vocab, const char * grammar, const char * root) {
    void * (*make)(void *, const char *, const char *) = dlsym(RTLD_NEXT, __func__);
    return make(vocab, "root ::= [^~]+", root);
}
""",
    # The sampled token is the likeliest one.
    "samples_the_likeliest": """
void * llama_sampler_init_dist(int seed) {
    void * (*make)(void) = dlsym(RTLD_NEXT, "llama_sampler_init_greedy");
    return make();
}
""",
    # It ends at its 40th graph.
    "dies": """
int ggml_backend_sched_graph_compute_async(void * scheduler, void * graph) {
    int (*compute)(void *, void *) = dlsym(RTLD_NEXT, __func__);
    static int n;
    if (++n == 40) abort();
    return compute(scheduler, graph);
}
""",
}


def write_preloaded(folder: Path, tools: Path, how: str) -> Path:
    """Write a folder whose llama-server is that of another folder with one kind of harm."""
    folder.mkdir()
    source, library, program = (folder / name for name in ("h.c", "harm.so", "llama-server"))
    source.write_text(_COMMON + _HARM[how])
    command = ["cc", "-shared", "-fPIC", "-O1", "-o", str(library), str(source), "-ldl"]
    subprocess.run(command, check=True)
    program.write_text(f'#!/bin/sh\nLD_PRELOAD={library} exec {tools}/llama-server "$@"\n')
    program.chmod(0o755)
    return folder
