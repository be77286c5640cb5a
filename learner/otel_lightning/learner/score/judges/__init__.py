"""Judges: a model reads a stored rollout and scores it by a rubric."""
