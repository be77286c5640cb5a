"""The times between which rows were written, so that a search reads few rows of a large table.

Begin in `recent_traces.py`, which knows them for the rows of traces; `older_traces.py` knows those
of more traces in a shorter form. `key_ranges.py` knows them for the keys of traces.
"""
