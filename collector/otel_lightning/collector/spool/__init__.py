"""The log between receiving and storing: requests in it survive a crash. Begin in `spool.py`."""
