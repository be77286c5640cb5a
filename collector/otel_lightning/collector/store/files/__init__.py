"""The files of a store: DuckDB's file, its log, its folder for spilling, and the server file.

`server_file.py` says which process serves a store, and loads no DuckDB. `replacement.py` replaces
the file of a store that is being served.
"""
