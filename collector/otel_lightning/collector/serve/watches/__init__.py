"""Threads that watch the serving process: its threads, connections, certificates and files.

Begin in `supervision.py`, which watches the others. `parts.py` starts and stops them.
"""
