"""Decode OTLP requests into the columns of `spans` and `logs`. Pure: bytes in, Arrow out.

Begin in `decode.py`. `columns.py` converts ids, times and names, and `values.py` the values of
attributes; `attribute_limits.py` cuts what is beyond the limits.
"""
