"""Read the logged choices of a flag from the store: one per rollout, with its task and outcome.

Begin in `choices.py`; `staged.py` has the statements, and `propensities.py` where a choice gets its
propensity from.
"""
