"""Records of model calls by a provider's own SDK, where nothing names the call that they repeat.

Anthropic's SDK writes a span without messages for each call, and so do other packages whose content
is switched off. LangChain's packages do not know the response id and the input tokens of a streamed
call, Monocle knows no response ids, and the other span is often in a trace of its own. What one
record lacks, the other has: time, model and tokens tell then which records are of one call, unless
several fit. Where both have the messages, the input must be the same, too. A stream whose provider
sent no token counts is known by the input, the answer and the time.
"""

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator

from otel_lightning.collector.derive.messages.packing import outputs
from otel_lightning.collector.derive.passes.duplicates.equal_answers import comparable_parts
from otel_lightning.collector.derive.rows import LlmCall
from otel_lightning.collector.derive.span_tree import place_of

WITHIN_NS = 10_000_000_000
"""Length (10 s) of the time interval in a mark. Both records end in one, or in two neighbours."""
BROKE_OFF = "broke off"
"""Stands in the kind of a record, where others say whether the call succeeded."""
LATER_NS = 5_000_000
"""Time (5 ms) by which an SDK's record may end later: both listen to the stream that ends."""


def may_be_one_of_two(call: LlmCall) -> bool:
    """Return whether a record may be one of two of a call; most calls show that it is not.

    An SDK's record has no content, a framework's no response id, and a client's no parent.
    """
    return call.content == "absent" or call.response_id is None or call.parent_span_id is None


def marks(call: LlmCall) -> Iterator[tuple[str, bool]]:
    """Yield the marks by which a framework's record and the SDK's find each other across traces.

    Yields:
        A mark made of service, model, output tokens and time; and True if the record is the SDK's.
    """
    is_sdks = _is_sdks(call)
    if is_sdks or _is_frameworks(call):
        end_ns = call.end_ns or 0
        ended = end_ns // WITHIN_NS
        # Fewer calls are an SDK's than a framework's, so the SDK's has several marks: also of the
        # interval before, if it began there.
        first_interval = min(call.start_ns or end_ns, end_ns - LATER_NS) // WITHIN_NS
        ends = {max(first_interval, ended - 1), ended, ended + 1} if is_sdks else {ended}
        for at in sorted(ends):
            kinds = _kinds(call) if is_sdks else _frameworks_kinds(call)
            yield from ((f"{kind} {at}", is_sdks) for kind in kinds)
    if call.history.input_hash and (_is_clients(call) or _may_be_frameworks(call)):
        kinds = _clients_kinds(call) if _is_clients(call) else [_kind(call)]
        for kind in kinds:
            yield f"{kind} {call.history.input_hash}", _is_clients(call)


def pairs(calls: Collection[LlmCall]) -> Iterator[tuple[LlmCall, LlmCall]]:
    """Yield (framework's record, SDK's record) of one call: each is the only one that fits."""
    sdk_records = [
        call for call in filter(may_be_one_of_two, calls) if _is_sdks(call) or _is_clients(call)
    ]
    if not sdk_records:
        return
    fitting = list(_fitting(calls, sdk_records))
    times = Counter(place_of(call) for both in fitting for call in both)
    yield from (both for both in fitting if all(times[place_of(call)] == 1 for call in both))


def _fitting(
    calls: Collection[LlmCall], sdk_records: Iterable[LlmCall]
) -> Iterator[tuple[LlmCall, LlmCall]]:
    """Yield (framework's record, SDK's record) for any two records that may be of one call."""
    with_content = {call.response_id for call in calls if call.content != "absent"}
    above = {(sdk.trace_id, sdk.parent_span_id) for sdk in sdk_records}
    frameworks: dict[tuple[object, ...], list[LlmCall]] = defaultdict(list)
    above_an_sdk = set()
    for call in filter(_may_be_frameworks, calls):
        # A record right above an SDK's is of the same call, so neither takes another one.
        if place_of(call) in above:
            above_an_sdk.add(place_of(call))
        else:
            for kind in _frameworks_kinds(call):
                frameworks[kind].append(call)
    for sdk in sdk_records:
        is_empty, response_id = sdk.content == "absent", sdk.response_id
        has_its_record = is_empty and response_id is not None and response_id in with_content
        if has_its_record or (sdk.trace_id, sdk.parent_span_id) in above_an_sdk:
            continue
        for kind in _kinds(sdk) if is_empty else _clients_kinds(sdk):
            yield from ((call, sdk) for call in frameworks.get(kind, ()) if _fit(call, sdk))


def failed_midway(call: LlmCall) -> bool:
    """Return whether a record says that a stream failed after it had begun: it has a response id.

    No SDK repeats such a request by itself.
    """
    return call.error_type is not None and call.response_id is not None


def _is_sdks(call: LlmCall) -> bool:
    is_known = _has_count_or_error(call) or _is_left(call)
    return call.content == "absent" and is_known and _is_answered(call)


def _is_left(call: LlmCall) -> bool:
    """Return whether a record may be of a stream that the client left, with an unknown end."""
    is_open = call.output_tokens is None and call.error_type is None and call.finish_reason is None
    return is_open and call.operation != "embeddings"


def _is_clients(call: LlmCall) -> bool:
    """Return whether a client's instrumentation may have written this beside a framework's record.

    It knows the messages, and is in a trace of its own, as LangChain's streams are.
    """
    return _is_answered(call) and call.parent_span_id is None and call.content == "full"


def _alike(framework: LlmCall, sdk: LlmCall) -> bool:
    """Return whether two records have the same input and, without counts, the same answer.

    No package records a call twice: two of its records are of calls at the same time.
    """
    if framework.scope_name == sdk.scope_name:
        return False
    asked = framework.history.input_hash
    is_known = asked is not None and asked == sdk.history.input_hash
    return is_known and (_has_count_or_error(framework) or _same_answer(framework, sdk))


def _same_answer(one: LlmCall, other: LlmCall) -> bool:
    parts, other_parts = comparable_parts(outputs(one)), comparable_parts(outputs(other))
    same_ids = one.history.tool_call_ids == other.history.tool_call_ids
    return bool(parts) and parts == other_parts and same_ids


def _may_be_frameworks(call: LlmCall) -> bool:
    return _is_frameworks(call) or _is_uncounted(call)


def _is_frameworks(call: LlmCall) -> bool:
    return call.response_id is None and call.content != "absent" and _has_count_or_error(call)


def _is_uncounted(call: LlmCall) -> bool:
    """Return whether a framework wrote this for a stream without token counts."""
    is_whole = call.response_id is None and call.content == "full"
    return is_whole and call.finish_reason is not None and not _has_count_or_error(call)


def _is_answered(call: LlmCall) -> bool:
    """Return whether a record has what only the provider's client gets: a response id or error."""
    return call.response_id is not None or call.error_type is not None


def _has_count_or_error(call: LlmCall) -> bool:
    return call.output_tokens is not None or call.error_type is not None


def _kind(call: LlmCall) -> tuple[object, ...]:
    return call.service_name, call.request_model, call.output_tokens, call.error_type is None


def _kinds(call: LlmCall) -> list[tuple[object, ...]]:
    """Return the kinds of a framework's records that may be of the same call as this one.

    Strands for TypeScript writes an answer that was cut off at its token limit as an error, and
    LangChain a stream that was left.
    """
    kind = _kind(call)
    if _is_left(call):
        return [(*kind[:2], None, False)]
    if failed_midway(call):
        return [kind, (*kind[:2], None, BROKE_OFF)]
    is_cut_off = call.finish_reason == "length" and call.error_type is None
    return [kind, (*kind[:2], None, False)] if is_cut_off else [kind]


def _frameworks_kinds(call: LlmCall) -> list[tuple[object, ...]]:
    """Return the kinds of a framework's record.

    OpenInference for JavaScript writes a stream that broke off as an answer without a reason, with
    the count that Anthropic sends at its start. The SDK's record has the error and no count.
    """
    kind = _kind(call)
    has_no_end = call.finish_reason is None and call.error_type is None
    return [kind, (*kind[:2], None, BROKE_OFF)] if has_no_end else [kind]


def _clients_kinds(call: LlmCall) -> list[tuple[object, ...]]:
    """Return the kinds of other records that may be of the same call as a client's.

    Langfuse's wrapper does not record the model that was asked for.
    """
    service, _, *more = _kind(call)
    return [*_kinds(call), (service, None, *more)]


def _fit(framework: LlmCall, sdk: LlmCall) -> bool:
    """Return whether two records of one kind may be of one call."""
    if framework is sdk or not (_contains(framework, sdk) or _is_inside(framework, sdk)):
        return False
    return sdk.content == "absent" or _alike(framework, sdk)


def _contains(framework: LlmCall, sdk: LlmCall) -> bool:
    starts_before = (framework.start_ns or 0) <= sdk.latest_start_ns
    # Strands for TypeScript leaves Anthropic's cached tokens out, which the SDK's record includes.
    cached = (sdk.cached_input_tokens or 0) + (sdk.cache_creation_input_tokens or 0)
    sent = sdk.input_tokens
    counted = framework.input_tokens in {None, sent, sent and sent - cached}
    return starts_before and counted and (sdk.end_ns or 0) <= (framework.end_ns or 0) + LATER_NS


def _is_inside(framework: LlmCall, sdk: LlmCall) -> bool:
    """Return whether a framework's record with the same counts lies inside the time of the SDK's.

    The span of Anthropic's `messages.stream` is around its call of `messages.create`, where
    OpenInference listens. Two records of a failed call have no counts.
    """
    both_failed = bool(framework.error_type and sdk.error_type) and sdk.content == "absent"
    if framework.input_tokens != sdk.input_tokens or (
        framework.input_tokens is None and not both_failed
    ):
        return False
    starts_before = (sdk.start_ns or 0) <= framework.latest_start_ns
    return starts_before and (framework.end_ns or 0) <= (sdk.end_ns or 0) + LATER_NS
