"""Passes over the rows of a closed set of traces. Each completes the rows by what others say.

`parse.py` and `assemble.py`, beside this folder, run them in order.

- `duplicates/`: the records of one call by several instrumentations become one row
- `inputs/`: the inputs that a call's own span lacks or abridges
- `answers/`: the content, finish reason or error of an answer, which other spans tell
- `tools/`: tool executions, joined with the tool calls in messages
- `rollouts/`: the rollout of each span
- `retrievals.py`: which call used the documents that a retrieval found
"""
