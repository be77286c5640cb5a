"""Records of one model call, tool or agent by several instrumentations, merged into one row.

Begin in `merge.py`. Each rule by which two records are of one call yields pairs: `equal_keys.py`
(the response id, a failure, or input and answer), `nested.py` (one inside the other),
`sdk_records.py` (by a provider's SDK) and `side_by_side.py` (of a framework and its client).
`merged_records.py` chooses the values of the merged row. `outermost.py` merges tools and agents.
"""
