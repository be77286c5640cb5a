"""The base of a training run: the model as loaded, TRL's trainers, checkpoints, processes.

`load.py` loads the model, `trl_overrides.py` has the few places where TRL has to do something else,
and `failures.py` explains errors of libraries and machines.
"""
