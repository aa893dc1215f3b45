"""The island: runs inside an engine's own interpreter and imports nothing of the parent.

The parent starts it with `python -I` and loads this folder under an alias, so a virtual environment
with only an engine is enough. Everything here uses the standard library, numpy (a dependency of the
engines) and the one requested engine.
"""
