"""`lightning-learn export`: transitions as files for other trainers."""
