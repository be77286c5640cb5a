"""Passes over the rows of a closed set of traces. Each completes the rows by what others say.

`parse.py` and `assemble.py`, beside this folder, run them in order. By subject:

- duplicates: `duplicates.py` finds the records of one call, with `sdk_records.py` and
  `side_by_side.py`; `merged_records.py` merges them; `outermost.py` drops nested tools and agents
- inputs: `earlier_turns.py`, `incremental_inputs.py`, `outlined_inputs.py`,
  `failed_inputs.py`, `late_inputs.py`
- answers: `requests_in_spans.py`, `unanswered_calls.py`, `finish_reasons.py`,
  `answering_agents.py`, `request_bodies.py`
- tools: `tools.py` joins executions with requests (`tool_requests.py`, `waiting_requests.py`,
  `tool_ids.py`); `tool_evidence.py` does so across traces
- rollouts: `rollouts.py`, `conversations.py`, `retrievals.py`
- rewards: `rewards_and_arms.py`, `vendor_rewards.py`
"""
