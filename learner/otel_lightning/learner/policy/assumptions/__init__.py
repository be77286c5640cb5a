"""Test what estimates assume of the logged choices, and refuse or correct what does not hold.

Arms were drawn at random (`at_random.py`), tasks are independent draws (`units.py`, `copies.py`,
`multiples.py`), rewards and propensities are missing by chance (`missing.py`, `untold.py`), and
nothing drifts (`drift.py`).
Functions of frames and arrays: nothing here reads the store.
"""
