"""The commands of `lightning-ingest`. They only parse options and print reports.

`cli.py`, beside this folder, lists them.
"""
