"""Score stored rollouts afterwards, by rules (`rules/`) and by judges (`judges/`).

`table.py` writes the scores of both.
"""
