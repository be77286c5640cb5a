"""The log between receiving and storing: requests in it survive a crash.

Begin in `spool.py`, which writes and reads it; `format.py` says what its files hold.
"""
