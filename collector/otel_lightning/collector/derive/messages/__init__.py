"""Messages of model calls in one form for all dialects: OpenTelemetry's GenAI conventions.

Begin in `messages.py`, which converts a message of any provider; `content_blocks.py` reads the
blocks in it, and `payloads.py` whole requests and responses.
"""
