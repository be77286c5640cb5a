"""Sort keys of rows: by time, then by id, so that the order of delivery has no effect."""

from otel_lightning.collector.derive.rows import AgentRun, LlmCall, Reward, ToolCall


def of_call(call: LlmCall) -> tuple[int, int, str, str]:
    """Return the sort key of model calls."""
    return call.start_ns or 0, call.end_ns or 0, call.trace_id, call.span_id


def of_tool(tool: ToolCall) -> tuple[int, str, str]:
    """Return the sort key of tool executions."""
    return tool.start_ns or 0, tool.trace_id or "", tool.span_id or ""


def of_run(run: AgentRun) -> tuple[int, str, str]:
    """Return the sort key of agent runs."""
    return run.start_ns or 0, run.trace_id, run.span_id


def of_reward(reward: Reward) -> tuple[int, str]:
    """Return the sort key of rewards: of several for one subject, the last one counts."""
    return reward.time_ns or 0, reward.reward_id
