"""Keep the table `rollout_rows`: one row for each rollout.

Begin in `rollout_rows.py`. A row joins what `totals.py` computes from calls, tools and agents with
what `labels.py` looks up: task, arms and rewards.
"""
