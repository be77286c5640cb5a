"""Passes over the rows of a closed set of traces. Each completes the rows by what others say.

`assemble.py`, beside this folder, runs them in order.
"""
