"""Derive batches of traces: how they are read, cut and written, and what is kept between them.

Begin in `batch.py`.
"""
