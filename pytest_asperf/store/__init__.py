"""Reports that are kept, and the series that they add to.

A session's JSON document is stored whole. Beside it are the columns that are searched: one row for
each figure, in a series of figures of the same kind.
"""
