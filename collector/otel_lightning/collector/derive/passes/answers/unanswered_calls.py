"""Calls whose error only the span of the agent's run states.

Pydantic AI ends the span of a streamed call that failed without its error, with an empty answer.
"""

from collections.abc import Iterable, Sequence

from otel_lightning.collector.derive.content_state import content_state
from otel_lightning.collector.derive.messages.packing import outputs, unpack
from otel_lightning.collector.derive.rows import AgentRun, LlmCall
from otel_lightning.collector.derive.span_tree import Nodes, inherited


def fail(calls: Sequence[LlmCall], runs: Iterable[AgentRun], nodes: Nodes) -> None:
    """Give the last call of a run that failed the error of the run, if nothing tells of an answer.

    Args:
        calls: Model calls in time order; changed in place.
        runs: The runs of agents.
        nodes: All spans.
    """
    ended = {(run.trace_id, run.span_id): run for run in runs}
    if not any(run.error[0] for run in ended.values()):
        return
    above = [(call.trace_id, call.parent_span_id or "") for call in calls]
    around = inherited(nodes, {place: place for place in ended}, above)
    last = {around[up]: call for up, call in zip(above, calls, strict=True) if up in around}
    for place, call in last.items():
        kind, message = ended[place].error
        if kind and call.error_type is None and is_unanswered(call):
            call.error_type, call.error_message, call.finish_reason = kind, message, "error"
            unpack(call).output_messages = None
            call.content = content_state(call, cut=False)


def is_unanswered(call: LlmCall) -> bool:
    """Return whether no id, reason, count or part of an answer says that the model gave one."""
    if any((call.response_id, call.finish_reason, call.output_tokens, call.completion_token_ids)):
        return False
    return not any(message["parts"] for message in outputs(call))
