"""Messages, payloads and JSON text of model calls, in one form for all dialects.

Begin in `messages.py`, which converts messages of any provider; `payloads.py` reads whole requests
and responses. `histories.py` hashes messages, by which calls find the calls they continue.
"""
