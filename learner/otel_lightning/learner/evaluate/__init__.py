"""Off-policy estimates, and the gate: is a candidate better than the live policy?

Begin in `gate.py`; `estimates.py` and `intervals.py` compute what it compares, with the estimators
of `off_policy/`. `paired.py` compares arms or models that ran on the same tasks.
"""
