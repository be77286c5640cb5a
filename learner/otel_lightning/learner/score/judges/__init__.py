"""Judges: a model reads a rollout and scores it by a rubric, offline."""
