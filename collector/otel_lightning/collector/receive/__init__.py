"""Receive OTLP: check each request, append it to the spool, then answer."""
