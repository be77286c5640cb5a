"""`lightning-ingest check`: is the store complete, and are its derived tables current?"""
