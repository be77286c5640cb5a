"""Inputs of failed calls, which only the span of the agent's run states.

Pydantic AI writes the messages of a call once it is answered, and those of a run also if it failed.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence

from otel_lightning.collector.derive.content_state import content_state
from otel_lightning.collector.derive.messages.packing import unpack
from otel_lightning.collector.derive.rows import AgentRun, LlmCall
from otel_lightning.collector.derive.span_tree import Nodes, inherited


def fill(calls: Sequence[LlmCall], runs: Iterable[AgentRun], nodes: Nodes) -> Iterator[LlmCall]:
    """Give the only call of a run that failed the messages of the run, if it has none itself.

    The messages of a run may lack its last turns, so a call after others gets none.

    Args:
        calls: Model calls; changed in place.
        runs: The runs of agents.
        nodes: All spans.

    Yields:
        The calls that were changed.
    """
    stated = {(run.trace_id, run.span_id): run.messages for run in runs if run.messages}
    if not stated:
        return
    above = [(call.trace_id, call.parent_span_id or "") for call in calls]
    around = inherited(nodes, {place: place for place in stated}, above)
    runs_of_calls = [around.get(place) for place in above]
    calls_of_run = Counter(runs_of_calls)
    for run_place, call in zip(runs_of_calls, calls, strict=True):
        if run_place is None or calls_of_run[run_place] > 1 or not call.error_type:
            continue
        if not unpack(call).input_messages:
            call.input_messages = stated[run_place]
            call.content = content_state(call, cut=False)
            yield call
