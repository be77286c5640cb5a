"""`lightning-learn policy`: a softmax policy over the arms of a feature flag.

Begin in `learn.py`. It reads logged choices (`logged/`, which tests `assumptions/`), learns
(`softmax/`), judges on held-out tasks (`gate/`), and promotes into the flag file (`serving/`).
`evaluate.py` is `lightning-learn evaluate`.
"""
