"""The rollout of each span: by the ids that spans state, or by which call continues which.

Begin in `assign.py`. `stated_ids.py` finds the ids of a span, and `conversations.py` tells which
conversation ids name a rollout; `continuations.py` finds the earlier call of each call.
"""
