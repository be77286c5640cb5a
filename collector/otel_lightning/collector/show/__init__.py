"""Show a stored rollout: the conversation step by step, with tools, rewards and credit.

`rollout.py` reads it; `text.py` and `html.py` write it.
"""
