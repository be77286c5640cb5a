"""Start the processes of a run, end them, and keep a journal of how they ended.

Begin in `processes.py`, the runner's side. `standalone/` is the small process that starts them and
outlives the runner; `journal.py` records the ends, so that a killed run can go on.
"""
