"""OTLP: its fields, its JSON form, its files, and the repair of damaged requests."""
