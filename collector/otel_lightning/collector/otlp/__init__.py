"""OTLP: its fields, its JSON form, and the repair of damaged requests.

`fields.py` lists the messages and fields that are stored.
"""
