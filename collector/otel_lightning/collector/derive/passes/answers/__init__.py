"""Answers of model calls that other spans and log records tell: their content, reason or error.

Each module knows one case. `parse.py` and `assemble.py` call them.
"""
