"""The `lightning-ingest` of a run: started, shared with other runs, and sent the runner's events.

Begin in `receiver.py`; `idle_ingester.py` starts it only when somebody needs it.
"""
