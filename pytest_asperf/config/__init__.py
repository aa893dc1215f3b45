"""The requests: options, markers, files and addresses, parsed into frozen dataclasses."""
