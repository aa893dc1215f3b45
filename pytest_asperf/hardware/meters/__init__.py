"""Energy counters of this machine: NVML, Linux RAPL, IOReport and powermetrics on Apple silicon."""
