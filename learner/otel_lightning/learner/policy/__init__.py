"""`lightning-learn policy`: a softmax policy over the arms of a feature flag.

Begin in `learn.py`. It reads logged choices (`choices.py`), learns (`softmax.py`, `contextual.py`,
`ascent.py`), and judges on held-out tasks (`judge.py`). `ship.py` promotes the policy into the flag
file (`flag_file.py`), and `evaluate.py` is `lightning-learn evaluate`.
"""
