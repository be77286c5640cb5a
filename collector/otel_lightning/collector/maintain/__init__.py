"""Maintenance of a whole store: copy it, back it up, erase traces from it, set its prices.

One module for each command: `backup.py`, `copy_store.py`, `erase.py` (`forget`) and `prices.py`.
`erase_served.py` erases while the ingester runs.
"""
