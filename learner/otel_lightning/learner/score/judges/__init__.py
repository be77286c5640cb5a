"""Judges: a model reads a stored rollout and scores it by a rubric.

Begin in `judging.py`; `endpoint.py` and `azure.py` are the judges, and `agreement.py` compares
ratings.
"""
