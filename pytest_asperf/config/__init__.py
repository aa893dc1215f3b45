"""The requests: options, markers, files and model specs, parsed into frozen dataclasses."""
