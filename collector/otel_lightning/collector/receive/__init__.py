"""Receive OTLP: check each request, append it to the spool, then answer.

Begin in `accept.py`, which is the same for both protocols; `http/` and `grpc.py` call it.
"""
