"""`lightning-learn export`: write transitions to files that other trainers read.

`write.py` writes them in one of the `formats/`.
"""
