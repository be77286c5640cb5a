"""Messages, payloads and JSON text of model calls, in one form for all dialects."""
