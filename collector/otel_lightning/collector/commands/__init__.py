"""Commands of `lightning-ingest` that have a module of their own."""
