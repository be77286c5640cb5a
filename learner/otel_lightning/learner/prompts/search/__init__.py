"""`lightning-learn prompts --search gepa`: search for a prompt with real rollouts of an agent.

Begin in `search.py`, which needs the package GEPA; `runs.py` runs the agent, and `record.py` lets a
search go on that was killed.
"""
