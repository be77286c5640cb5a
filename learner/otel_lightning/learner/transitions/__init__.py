"""`lightning-learn transitions`: build transitions, with credit, from rollouts and rewards.

Begin in `make.py`: `stage.py` stages the inputs with SQL, and `build.py` computes the transitions
of one bucket of tasks.
"""
