"""Variants of a flag: `variants.py` reads their texts, and `share.py` adds new ones to the file."""
