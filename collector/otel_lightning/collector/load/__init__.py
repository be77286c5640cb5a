"""From the spool into the tables `spans` and `logs`: decoding, duplicates, limits, retention.

Begin in `loader.py`, the thread that does it; `batches.py` is one transaction of it.
"""
