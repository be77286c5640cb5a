"""The gate of a policy: it is compared with the live policy on held-out tasks.

Begin in `judge.py`; the other modules are further reasons to refuse, and the rollouts that are
missing.
"""
