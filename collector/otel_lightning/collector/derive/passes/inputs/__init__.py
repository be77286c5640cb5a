"""Inputs of model calls that their own spans lack or abridge, completed from other spans.

Each module knows one way in which instrumentations do that. `parse.py` and `assemble.py` call them.
"""
