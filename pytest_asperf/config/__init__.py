"""What may be asked for: options, markers, files and addresses, parsed into frozen dataclasses."""
