"""Run the attempts that are missing, in one of several ways.

Begin in `engine.py`. `executors.py` starts a process for each attempt; others are workers that stay
(`workers.py`), a server (`servers.py`) and a Ray cluster (`ray_cluster.py`).
"""
