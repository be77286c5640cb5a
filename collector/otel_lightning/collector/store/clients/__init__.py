"""The SQL of clients: who may run which statement, within which limits, and when it is ended.

`read_only.py` decides over each statement of a client of DuckDB's server, and `page_reads.py` runs
those of the page.
"""
