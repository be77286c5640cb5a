"""`lightning-ingest serve`: the process that receives, stores, derives and answers.

Begin in `run.py`, which starts and stops everything; `settings.py` has what it is started with,
and `servers.py` the HTTP and gRPC servers.
`watches/` has the threads that watch the process.
"""
