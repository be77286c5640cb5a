"""Names of the tables that deriving fills. A derived table is listed here and nowhere else."""

PER_TRACE = (
    "llm_calls",
    "tool_calls",
    "agent_runs",
    "retrievals",
    "arms",
    "reward_events",
    "unread_spans",
)
"""Tables whose rows belong to one trace each."""
TABLES = (*PER_TRACE, "rollout_tasks")
