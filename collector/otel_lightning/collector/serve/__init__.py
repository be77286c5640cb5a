"""`lightning-ingest serve`: the process that receives, stores, derives and answers."""
