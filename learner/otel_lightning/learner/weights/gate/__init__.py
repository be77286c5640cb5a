"""The gate for new weights: by their likelihood of held-out completions, or by their scores.

Begin in `held_out.py`; `scores.py` is the gate of a reward model.
"""
