"""`lightning-learn weights`: fine-tune a model offline with TRL."""
