"""Records of model calls by a provider's own SDK, where nothing names the call that they repeat.

Anthropic's SDK writes a span without messages for each call. LangChain's packages do not know the
response id and the input tokens of a streamed call, and the SDK's span is often in a trace of its
own. Time, model and output tokens tell then which records are of one call, unless several fit.
"""

from collections import defaultdict
from collections.abc import Collection, Iterator

from otel_lightning.collector.derive.rows import LlmCall
from otel_lightning.collector.derive.span_tree import place_of

SDKS = {"anthropic"}
"""The providers whose SDK has a tracer of its own."""
PROVIDERS = {*SDKS, "langchain"}
"""What a framework may call them: LangSmith names LangChain for all models."""
WITHIN_NS = 10_000_000_000
"""Length (10 s) of the time interval in a mark. Both records end in one of two neighbours."""


def marks(call: LlmCall) -> Iterator[tuple[str, bool]]:
    """Yield the marks by which a framework's record and the SDK's find each other across traces.

    Yields:
        A mark made of service, model, output tokens and time; and True if the record is the SDK's.
    """
    if call.provider not in PROVIDERS:  # as of most calls
        return
    ended = (call.end_ns or 0) // WITHIN_NS
    if _is_sdks(call):
        yield f"{_kind(call)} {ended}", True
    elif _is_frameworks(call):
        yield from ((f"{_kind(call)} {at}", False) for at in (ended, ended - 1))


def pairs(calls: Collection[LlmCall]) -> Iterator[tuple[LlmCall, LlmCall]]:
    """Yield (framework's record, SDK's record) of one call: each is the only one that fits."""
    of_sdk = [call for call in calls if _is_sdks(call)]
    if not of_sdk:
        return
    named = {call.response_id for call in calls if call.content != "absent"}
    wholes: dict[tuple[object, ...], list[LlmCall]] = defaultdict(list)
    for call in calls:
        if _is_frameworks(call):
            wholes[_kind(call)].append(call)
    fitting = [
        (whole, own)
        for own in of_sdk
        if own.response_id is None or own.response_id not in named
        for whole in wholes.get(_kind(own), ())
        if _contains(whole, own)
    ]
    times: dict[tuple[str, str], int] = defaultdict(int)
    for both in fitting:
        for call in both:
            times[place_of(call)] += 1
    yield from (both for both in fitting if [times[place_of(call)] for call in both] == [1, 1])


def _is_sdks(call: LlmCall) -> bool:
    named = bool(call.response_id or call.error_type)
    return call.provider in SDKS and call.content == "absent" and named


def _is_frameworks(call: LlmCall) -> bool:
    return call.provider in PROVIDERS and call.content != "absent" and not call.response_id


def _kind(call: LlmCall) -> tuple[object, ...]:
    return call.service_name, call.request_model, call.output_tokens, call.error_type is None


def _contains(whole: LlmCall, own: LlmCall) -> bool:
    begun = (whole.start_ns or 0) <= own.latest_start_ns
    return begun and (own.end_ns or 0) <= (whole.end_ns or 0)
