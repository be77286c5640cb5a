"""`lightning-ingest check` and `doctor`: is the store complete, and can one learn from its data?"""
