"""Rewards, and arms (the values of feature flags that were in force).

Both are sent as OpenTelemetry's own events, `gen_ai.evaluation.result` and
`feature_flag.evaluation`, either as span events or as log records. Azure AI Foundry's earlier
events name what was judged in the event's name.
"""

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from otel_lightning.collector.derive.attributes import flattened, reading, spellings
from otel_lightning.collector.derive.rewards import vendor_rewards
from otel_lightning.collector.derive.rewards.scores import UNNAMED, identity, number, score
from otel_lightning.collector.derive.rows import Arm, Attributes, Log, Reward, Span
from otel_lightning.collector.derive.text import json_text
from otel_lightning.instrumentation import attributes as names

EVENTS = {names.EVALUATION_RESULT, names.FEATURE_FLAG_EVALUATION}
FOUNDRY, FOUNDRY_SCORE = "gen_ai.evaluation.", "gen_ai.evaluation.score"
"""Prefix of the names of Azure AI Foundry's earlier events, such as
`gen_ai.evaluation.user_feedback`, and the key of their score. The rest of the name is what was
judged."""
RESPONSE_IDS = (names.RESPONSE_ID, "gen_ai.response_id")
ANNOTATION = "agentlightning.annotation"
ERROR = "error.type"


class CarriedEvent(NamedTuple):
    """An event with the ids of its span: the common form of a span event and a log record."""

    name: str
    time_ns: int | None
    attributes: Attributes
    resource: Attributes
    trace_id: str | None
    span_id: str | None
    source: str
    body: str | None = None


def is_event(name: str | None) -> bool:
    """Return whether an event or log record of this name is a reward or an arm."""
    return name is not None and (name in EVENTS or name.startswith(FOUNDRY))


def of_span(span: Span) -> Iterator[Reward | Arm]:
    """Yield the rewards and arms in the events of a span, or of Agent Lightning's annotation.

    Those in other attributes are read by `vendor_rewards.readers`.
    """
    for event in span.events:
        if is_event(event.name):
            place = span.resource, span.trace_id, span.span_id, "span"
            yield from _event_row(CarriedEvent(event.name, event.time_ns, event.attributes, *place))
        elif event.name == vendor_rewards.LANGWATCH:
            yield from vendor_rewards.langwatch(span, event)
    if span.name == ANNOTATION:
        yield from _annotated(span)


def of_log(log: Log) -> Iterator[Reward | Arm]:
    """Yield the reward or arm that a log record holds, if it holds one."""
    if is_event(log.event_name):
        source = "feedback" if names.FEEDBACK_ID in log.attributes else "log"
        place = log.resource, log.trace_id or "", log.span_id or "", source, log.body
        yield from _event_row(
            CarriedEvent(log.event_name or "", log.time_ns, log.attributes, *place)
        )


def _event_row(event: CarriedEvent) -> Iterator[Reward | Arm]:
    row = _arm(event) if event.name == names.FEATURE_FLAG_EVALUATION else _reward(event)
    if row is not None:
        yield row


def _reward(event: CarriedEvent) -> Reward | None:
    value_of = event.attributes.get
    value = score(event.attributes, names.EVALUATION_SCORE_VALUE)
    label = value_of(names.EVALUATION_SCORE_LABEL) or None
    name, why = value_of(names.EVALUATION_NAME), value_of(names.EVALUATION_EXPLANATION)
    is_foundry = event.name != names.EVALUATION_RESULT
    if is_foundry:
        value = score(event.attributes, FOUNDRY_SCORE) if value is None else value
        name = name or event.name.removeprefix(FOUNDRY)
        why = why or _comment(event.body)
    if value is None and label is None and (is_foundry or ERROR in event.attributes):
        return None  # the judge failed, so it is no judgement
    return Reward(
        reward_id=_reward_id(event),
        name=name or UNNAMED,
        value=value,
        label=label,
        explanation=why or None,
        trace_id=event.trace_id or None,
        span_id=event.span_id or None,
        response_id=reading.text(event.attributes, *RESPONSE_IDS),
        rollout_id=_stated_rollout(event),
        task_id=value_of(names.TASK_ID) or event.resource.get(names.TASK_ID) or None,
        source=event.source,
        time_ns=event.time_ns,
    )


def _comment(body: str | None) -> str | None:
    comment = json_text.as_object(json_text.parse(body)).get("comment")
    return comment if isinstance(comment, str) else None


def _reward_id(event: CarriedEvent) -> str:
    # Feedback with an id that was sent before replaces the earlier one, whatever it says.
    if own := event.attributes.get(names.FEEDBACK_ID):
        return identity(names.FEEDBACK_ID, event.trace_id or None, own)
    items = sorted(event.attributes.items())
    return identity(event.trace_id, event.span_id, event.time_ns, items)


def _annotated(span: Span) -> Iterator[Reward]:
    """Yield the rewards of an annotation span.

    They belong to the span or response that the annotation links to or, without a link, to the
    rollout.
    """
    attributes = span.attributes
    links = {
        link.get("key_match"): link.get("value_match")
        for link in flattened.nested(attributes, "agentlightning.link.")
    }
    for position, item in enumerate(_dimensions(attributes)):
        yield Reward(
            reward_id=identity(span.trace_id, span.span_id, "agentlightning.reward.", position),
            name=item.get("name") or UNNAMED,
            value=score(item, "value"),
            trace_id=links.get("trace_id") or span.trace_id,
            span_id=links.get("span_id"),
            response_id=links.get(names.RESPONSE_ID),
            rollout_id=reading.text(attributes, *spellings.ROLLOUT)
            or reading.text(span.resource, *spellings.ROLLOUT),
            task_id=reading.text(span.resource, names.TASK_ID),
            source="agentlightning",
            time_ns=span.start_ns,
        )


def _dimensions(attributes: Attributes) -> list[Attributes]:
    """Return the rewards in the form of Agent Lightning 0.3 or, if there are none, of 0.2."""
    listed: list[Attributes] = flattened.nested(attributes, "agentlightning.reward.")
    return listed or ([{"value": attributes["reward"]}] if "reward" in attributes else [])


def distinct(arms: Iterable[Arm]) -> list[Arm]:
    """Return the arms without duplicates, sorted, so that the order of delivery has no effect."""
    unique = {(arm.trace_id, arm.span_id, arm.key, arm.arm, arm.time_ns): arm for arm in arms}
    return [unique[key] for key in sorted(unique, key=str)]


def _arm(event: CarriedEvent) -> Arm | None:
    attributes = event.attributes
    key = reading.text(attributes, names.FEATURE_FLAG_KEY)
    variant = reading.text(attributes, names.FEATURE_FLAG_VARIANT)
    if key is None or variant is None:
        return None
    return Arm(
        trace_id=event.trace_id or None,
        span_id=event.span_id or None,
        key=key,
        arm=variant,
        propensity=number(attributes, names.PROPENSITY),
        policy_version=reading.text(attributes, names.POLICY_VERSION),
        time_ns=event.time_ns,
        rollout_id=_stated_rollout(event),
    )


def _stated_rollout(event: CarriedEvent) -> str | None:
    # The conversation is looked for only without an own id, because `logs_without_trace` imports no
    # dialect.
    return (
        reading.text(event.attributes, names.ROLLOUT_ID)
        or reading.conversation_id(event.attributes)
        or reading.text(event.resource, *spellings.ROLLOUT)
    )
