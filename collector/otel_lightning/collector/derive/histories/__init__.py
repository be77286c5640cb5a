"""Hashes of messages: by them a call finds the call that it continues.

Begin in `histories.py`, which hashes the messages of a call; `message_hashes.py` hashes one
message, and `state.py` all that a model received.
"""
