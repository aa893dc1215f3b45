"""Published findings as tests: `pytest --pyargs pytest_asperf.findings`.

Those that hold on any hardware run live on the shipped models, at thresholds that the model card
justifies. Where nothing is measured, these and all others are judged by their recorded figures.
"""
