"""Keys that link traces: two traces with an equal key may belong to one rollout."""

from collections.abc import Iterator
from operator import itemgetter
from typing import NamedTuple

from otel_lightning.collector.derive.parse import ParsedRows
from otel_lightning.collector.derive.passes.duplicates import equal_keys, sdk_records
from otel_lightning.collector.derive.passes.inputs import earlier_turns
from otel_lightning.collector.derive.passes.rollouts import conversations, runtime_messages
from otel_lightning.collector.derive.passes.tools import tool_evidence


class Ties(NamedTuple):
    """Keys of traces, as columns of equal length."""

    trace_id: list[str]
    key: list[str]
    seeks: list[str]
    """The key of the traces that this trace belongs with: mostly the same one."""

    def add(self, other: "Ties") -> None:
        """Add the keys of other traces."""
        self.trace_id.extend(other.trace_id)
        self.key.extend(other.key)
        self.seeks.extend(other.seeks)


def ties(parsed: ParsedRows) -> Ties:
    """Return the keys of everything read that may tie a trace to others.

    Args:
        parsed: The parsed rows, after `complete_calls` added requests in spans to their calls.

    Returns:
        Keys prefixed by their kind: `rollout:`, `conversation:`, `response:`, `history:`,
        `failure:`, `answer:`, `message:`, `asks:`, `ran:`, `sdk:` and `framework:`.
    """
    own_keys: dict[tuple[str, str], None] = {}
    for (trace_id, _), name in parsed.rollout_ids.items():
        own_keys[trace_id, f"rollout:{name}"] = None
    for (trace_id, _), name in parsed.conversation_ids.items():
        own_keys[trace_id, f"conversation:{name}"] = None
        if name.startswith(conversations.RESPONSE):  # an agent's span may state a response
            own_keys[trace_id, f"response:{name}"] = None
    own_keys.update(dict.fromkeys(runtime_messages.keys(parsed.messages)))
    for call in parsed.calls:
        trace_id = call.trace_id
        history = call.history
        for prefix in history.prefixes:
            own_keys[trace_id, f"history:{prefix}"] = None
        for whole in history.with_answer:
            own_keys[trace_id, f"history:{whole}"] = None
        previous = call.request_params.get("previous_response_id")
        # Some packages write the id of the previous response as the conversation id.
        for response in (call.response_id, previous, call.conversation_id):
            if response:
                own_keys[trace_id, f"response:{response}"] = None
        own = equal_keys.trace_keys(call, parsed.nodes)
        own_keys.update(((trace_id, key), None) for key in own)
    traces, keys = list(map(itemgetter(0), own_keys)), list(map(itemgetter(1), own_keys))
    of_tools = [*_of_tools(parsed), *_of_sdks(parsed)]
    return Ties(
        traces + [trace for trace, _, _ in of_tools],
        keys + [key for _, key, _ in of_tools],
        keys + [seeks for _, _, seeks in of_tools],
    )


def _of_sdks(parsed: ParsedRows) -> Iterator[tuple[str, str, str]]:
    """Yield what ties the records of one call by a framework and by a provider's SDK.

    Yields:
        A trace id, its key, and the key of the traces that it belongs with.
    """
    for call in filter(sdk_records.may_be_one_of_two, parsed.calls):
        for mark, is_sdks in sdk_records.marks(call):
            own, other = ("sdk", "framework") if is_sdks else ("framework", "sdk")
            yield call.trace_id, f"{own}:{mark}", f"{other}:{mark}"


def _of_tools(parsed: ParsedRows) -> Iterator[tuple[str, str, str]]:
    """Yield what ties the execution of a tool in another trace to the call that asked for it.

    Calls do not find each other by it: some models number their tool calls from 0 in each rollout.

    Yields:
        A trace id, its key, and the key of the traces that it belongs with.
    """
    calls = [call for call in parsed.calls if call.history.has_tools]
    for call in calls:
        may_ask = call.history.tool_call_ids or call.lost_answers
        for key in tool_evidence.request_keys(call) if may_ask else ():
            yield call.trace_id, f"asks:{key}", f"ran:{key}"
    for call in calls:
        for mark, is_asked in earlier_turns.marks(call):
            own, other = ("asks", "ran") if is_asked else ("ran", "asks")
            yield call.trace_id, f"{own}:{mark}", f"{other}:{mark}"
    for key, row in tool_evidence.find_evidence(parsed.tools, calls, parsed.nodes):
        yield row.trace_id or "", f"ran:{key}", f"asks:{key}"
