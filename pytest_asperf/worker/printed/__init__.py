"""What llama.cpp's programs print, read: for the engine that runs them and for `asperf audit`."""
