"""Read the attributes of spans: typed values, flattened messages, and plans per shape of a span.

`reading.py` has the functions that dialects call. The others make reading fast: spans with the
same keys have one shape (`shapes.py`), and what depends on the keys alone is decided once for it.
"""
