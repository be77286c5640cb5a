"""The SQL of clients: who may run which statement, within which limits, and when it is ended.

Begin in `read_only.py`, which decides over each statement of a client of DuckDB's server. Readers'
statements run in a process with a memory limit (`reader_process.py`), within `reader_limits.py`.
`page_reads.py` runs the statements of the page, and `remote_query.py` is the client's side.
"""
