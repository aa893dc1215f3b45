"""Published findings as tests: `pytest --pyargs pytest_asperf.findings`.

Those for any hardware run live on the shipped models, at thresholds that the model card justifies.
If nothing is measured, these and all others are judged by their published figures.
"""
