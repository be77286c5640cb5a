"""Requests over HTTP: OTLP, feedback, SELECTs, metrics and health.

Begin in `application.py`, which answers a request; `server.py` is the server that calls it.
"""
