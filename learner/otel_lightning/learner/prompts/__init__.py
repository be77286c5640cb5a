"""`lightning-learn prompts`: let a model propose new variants of a prompt, and try them.

Begin in `propose.py`. It reads logged rollouts (`logged/`), asks a model and checks its answers
(`proposals/`), and gives new variants a share of the traffic (`serving/`). `search/` is
`--search gepa`, another way to get proposals. `compare.py` judges the new variants by running the
agent: `lightning-learn gate`.
"""
