"""A small server of one model for OpenAI clients, for tests, examples and evaluation by running.

Begin in `app.py`; `sampling.py` makes the tokens.
"""
