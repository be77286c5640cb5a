"""`lightning-learn report`: one HTML file about one learning run.

Begin in `write.py`; `facts.py` reads the run from the store.
"""
