"""Processes that derive batches of traces. They do not open the store: spans go in, rows come out.

Begin in `pool.py`, which starts and ends them. `worker.py` is a worker as its owner sees it, and
`worker_process.py` is the process itself; their messages are in `message_kinds.py`.
`worker_watch.py` kills a worker that does nothing, and `quarantine.py` has the traces on which
workers died.
"""
