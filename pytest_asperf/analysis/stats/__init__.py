"""The statistics behind a verdict: functions of sequences, without files or clocks.

`intervals` and `chunk_intervals` need numpy and scipy; the imports here need neither.
"""

from pytest_asperf.analysis.stats.estimate import Estimate
from pytest_asperf.analysis.stats.sequential import PairedTest

__all__ = ["Estimate", "PairedTest"]
