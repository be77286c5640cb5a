"""Which traces are derived together, and the reading of their spans.

Begin in `closed_set.py`. `tied_keys.py` has the keys by which one trace leads to others.
`sorted_copy.py` and `late_spans.py` read fewer rows: of traces that lie scattered over the store,
and of large traces that grow.
"""
