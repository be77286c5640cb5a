"""Keep the derived tables current: find changed traces, derive them, write their rows.

Begin in `refresh.py`, one refresh; `closed_set.py` finds the traces that belong together.
`refresher.py` is what the loader calls, with workers or without. `rollout_*.py` keep one row for
each rollout.
"""
