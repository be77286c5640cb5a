"""`lightning-learn weights`: fine-tune a model offline with TRL.

Begin in `learn.py`, from the store to the verdict. `train.py` prepares the rows (`preparation/`),
trains with one of `algorithms/` on what `trainer/` has, and asks the gate (`gate/`). `promotion.py`
promotes the model if a gate passed it (`eligible.py`).
"""
