"""Which traces are derived together, and the reading of their spans.

Begin in `closed_set.py`; the keys by which one trace leads to others come from `derive/batches`.
`sorted_copy.py` and `late_spans.py` read fewer rows: of traces that lie scattered over the store,
and of large traces that grow.
"""
