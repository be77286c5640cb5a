"""Receive OTLP, keep every span in DuckDB, read every GenAI dialect into the same tables."""
