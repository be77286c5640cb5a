"""Requests to the ingester that serves a store, for commands that do not open the store.

`http.py` asks it to do something; `sql.py` reads a few rows.
"""
