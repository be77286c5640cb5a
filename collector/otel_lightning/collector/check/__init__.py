"""`lightning-ingest check` finds faults of the store; `doctor` finds data that harms learning."""
