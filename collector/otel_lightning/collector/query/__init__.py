"""`lightning-ingest sql` and `attach`: two ways to query the store.

`answer.py` runs one SELECT, `prompt.py` one after the other, and `attach.py` prints the SQL with
which another DuckDB reads the store.
"""
