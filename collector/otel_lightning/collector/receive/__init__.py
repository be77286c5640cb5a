"""Receiving OTLP: bytes in, bytes on the spool, answer out."""
