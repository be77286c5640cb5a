"""Which numbers can be rewards."""

HUGE = 1e60
"""Largest absolute reward: the fourth powers of larger ones are no finite numbers."""
