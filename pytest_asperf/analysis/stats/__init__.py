"""The statistics behind a verdict: functions of sequences, without files or clocks.

`estimate` needs only the language, so that verdicts can be built and rendered without numpy, and so
do `sequential` and `ppl_sequential`, whose tests keep what they were fed; `intervals` needs numpy
and scipy. Import the modules, not this package.
"""
