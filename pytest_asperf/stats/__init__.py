"""The statistics behind a verdict: functions of sequences, without files, clocks or state.

`estimate` needs only the language, so that verdicts can be built and rendered without numpy;
`intervals` needs numpy and scipy. Import the modules, not this package.
"""
