"""`lightning-ingest serve`: the process that receives, stores, derives and answers.

Begin in `run.py`.
"""
