"""Tool executions, joined with the tool calls in the messages of model calls.

Begin in `executions.py`, whose `join_tools` returns the executions of one rollout.
"""
