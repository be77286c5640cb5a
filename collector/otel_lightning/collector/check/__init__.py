"""`lightning-ingest check` finds faults of the store; `doctor` finds data that harms learning.

`counts.py` is `check`, `deep.py` is `check --deep`, and `doctor.py` is `doctor`.
"""
