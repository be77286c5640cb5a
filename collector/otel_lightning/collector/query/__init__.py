"""`lightning-ingest sql` and `attach`: two ways to query the store."""
