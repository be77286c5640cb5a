"""Records of one model call, tool or agent by several instrumentations, merged into one row.

Begin in `duplicates.py`, which pairs the records of a call and lets `merged_records.py` merge them.
"""
