"""`lightning-learn prompts`: let a model propose new variants of a prompt, and try them.

Begin in `propose.py`; `compare.py` judges proposals by running the agent, and `search.py` is
`--search gepa`.
"""
