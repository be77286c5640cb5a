"""`lightning-learn export`: write transitions to files that other trainers read."""
