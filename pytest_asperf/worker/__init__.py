"""The island: runs inside an engine's own interpreter and imports nothing of the parent.

The parent starts it with `python -I` and loads this folder under an alias, so a virtual
environment that holds an engine and nothing else is enough. Everything here keeps to the standard
library, numpy (which the engines bring) and the one engine asked for.
"""
