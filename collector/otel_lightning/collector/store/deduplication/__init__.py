"""Find the spans and log records that are stored already.

Begin in `seen_ids.py`; `bloom_filter.py` is the filter of its ids, and `kept_filters.py` keeps it
from one process to the next.
"""
