"""The output of llama.cpp's programs, read: for the engine and for `asperf audit`."""
