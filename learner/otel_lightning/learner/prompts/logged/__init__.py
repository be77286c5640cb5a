"""Read from the store what the proposing model may learn from.

Begin in `rollouts.py`, which reads and chooses rollouts; `records.py` writes them for the model,
and `ruled_out.py` finds the variants that proved worse than their parents.
"""
