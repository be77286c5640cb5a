"""Ask a model for better prompts, and check its answers.

Begin in `ask.py`, which has the text of the question; `plan.py` checks and names each proposal,
`checks.py` has the checks, and `history.py` the proposals of earlier runs.
"""
