"""The commands of `lightning-learn`, a file each: they parse and report, nothing more."""
