"""The times between which rows were written, so that a search reads few rows of a large table.

`recent_traces.py` knows them for the rows of traces, `key_ranges.py` for the keys of traces.
"""
