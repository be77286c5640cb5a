"""`lightning-learn weights`: fine-tune a model offline with TRL.

Begin in `learn.py`, from the store to the verdict; `train.py` trains with one of `algorithms/`, and
`held_out.py` is the gate.
"""
