"""`lightning-learn loop`: run, grade, learn, judge and deploy, round after round.

Begin in `rounds.py`; `stages.py` has what a round does, and `loop.py` how its stages run the agent.
`config.py` has the settings of a loop, which `config_file.py` reads.
"""
