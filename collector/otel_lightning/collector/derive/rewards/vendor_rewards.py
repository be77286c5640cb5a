"""Rewards in the forms of vendors: attributes of spans, and LangWatch's event.

Each form is a field that its vendor documents as a score of this span, its trace or its session.
Other numbers on spans, such as metrics, are no rewards.
"""

import json
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple

from otel_lightning.collector.derive.attributes import flattened, reading, spellings
from otel_lightning.collector.derive.attributes.shapes import Shape, shape_of
from otel_lightning.collector.derive.rewards.scores import UNNAMED, as_number, identity, score
from otel_lightning.collector.derive.rows import Attributes, Event, Reward, Span
from otel_lightning.collector.derive.text import json_text
from otel_lightning.instrumentation import attributes as names

AGENTOPS_OUTPUTS = ("agentops.task.output", "agentops.entity.output")
CONVENTIONS = (names.EVALUATION_SCORE_VALUE, names.EVALUATION_SCORE_LABEL)
LANGWATCH, LANGWATCH_JSON = "langwatch.evaluation.custom", "json_encoded_event"
BRAINTRUST = "braintrust.scores"
LAMINAR_TYPE, LAMINAR_OUTPUT = "lmnr.span.type", "lmnr.span.output"
HONEYHIVE, HONEYHIVE_COMMENT = "honeyhive_feedback.rating", "honeyhive_feedback.comment"
LOGFIRE, LOGFIRE_COMMENT = "logfire.feedback.name", "logfire.feedback.comment"
PYDANTIC, PYDANTIC_SCOPE = ("assertions", "scores", "labels"), "pydantic-evals"
TRULENS = "ai.observability.eval_root."
SCOPES = {"": "span", "trace.": "trace", "session.": "session"}
"""The judged object of OpenInference's feedback, by the prefix of its keys."""
WORDS = {"annotations.": "annotation", "evaluations.": "evaluation"}
OPENINFERENCE = {
    f"{scope}{words}": (word, target)
    for scope, target in SCOPES.items()
    for words, word in WORDS.items()
}
CARRIER = "EVALUATOR"
"""The kind of OpenInference's spans that only carry feedback on the span they link to."""
Reader = Callable[[Span], Iterator[Reward]]


class Judgement(NamedTuple):
    """A judgement before it has a place: its name, its score or its word, and why."""

    name: str | None
    value: float | None
    label: str | None = None
    explanation: str | None = None

    def of(self, span: Span, source: str, *place: str | None) -> Reward:
        """Return the reward: for the span, unless a trace id and a span id are given."""
        trace_id, span_id = place or (span.trace_id, span.span_id)
        return Reward(
            reward_id=identity(span.trace_id, span.span_id, source, place, *self),
            name=self.name or UNNAMED,
            value=self.value,
            label=self.label or None,
            explanation=self.explanation or None,
            trace_id=trace_id,
            span_id=span_id,
            rollout_id=reading.text(span.attributes, *spellings.ROLLOUT)
            or reading.text(span.resource, *spellings.ROLLOUT),
            task_id=reading.text(span.attributes, names.TASK_ID)
            or reading.text(span.resource, names.TASK_ID),
            source=source,
            time_ns=span.end_ns,
        )


def readers(shape: Shape) -> tuple[Reader, ...]:
    """Return the functions that read the rewards in the attributes of spans of one shape."""
    known = shape.known
    present = {
        _agentops: not known.isdisjoint(AGENTOPS_OUTPUTS),
        _braintrust: BRAINTRUST in known or shape.has_any(f"{BRAINTRUST}."),
        _conventions: not known.isdisjoint(CONVENTIONS),
        _laminar: {LAMINAR_TYPE, LAMINAR_OUTPUT} <= known,
        _honeyhive: HONEYHIVE in known,
        _logfire: LOGFIRE in known,
        _openinference: shape.has_any(tuple(OPENINFERENCE)),
        _pydantic: known.issuperset(PYDANTIC),
        _trulens: f"{TRULENS}score" in known,
    }
    return tuple(reader for reader, is_present in present.items() if is_present)


def langwatch(span: Span, event: Event) -> Iterator[Reward]:
    """Yield the reward of an event of LangWatch's, if the evaluation came to a result."""
    result = json_text.as_object(json_text.parse(event.attributes.get(LANGWATCH_JSON)))
    value = as_number(result.get("score"))
    if value is None:
        value = as_number(result.get("passed"))
    if result.get("status") not in {"skipped", "error"}:
        name, label, why = (_text(result, key) for key in ("name", "label", "details"))
        yield from _of_span(span, "langwatch", [Judgement(name, value, label, why)])


def _agentops(span: Span) -> Iterator[Reward]:
    """Yield the reward that a function under AgentOps' `@reward` returned."""
    text = reading.text(span.attributes, *AGENTOPS_OUTPUTS)
    output = json_text.parse(text)
    if isinstance(output, dict) and output.get("type") == "reward":
        value = output.get("value")
        if text and value is None:
            value = json.loads(text).get("value")  # `parse` reads NaN and infinity as null
        # `score` reads the text of an attribute.
        shown = value if isinstance(value, str) else json.dumps(value)
        yield Reward(
            reward_id=identity(span.trace_id, span.span_id, "agentops"),
            name=UNNAMED,
            value=score({"value": shown}, "value"),
            trace_id=span.trace_id,
            rollout_id=reading.text(span.resource, *spellings.ROLLOUT),
            source="agentops",
            time_ns=span.end_ns,
        )


def _braintrust(span: Span) -> Iterator[Reward]:
    """Yield Braintrust's scores: an object of them, or an attribute each."""
    attributes = span.attributes
    scores = json_text.as_object(json_text.parse(attributes.get(BRAINTRUST)))
    numbers = {name: as_number(value) for name, value in scores.items()}
    for key in shape_of(attributes).keys:
        if key.startswith(f"{BRAINTRUST}."):
            numbers[key.removeprefix(f"{BRAINTRUST}.")] = score(attributes, key)
    yield from _of_span(span, "braintrust", (Judgement(*one) for one in numbers.items()))


def _conventions(span: Span) -> Iterator[Reward]:
    """Yield the reward in the conventions' keys of a span, unless an event repeats it."""
    attributes = span.attributes
    name = attributes.get(names.EVALUATION_NAME)
    events = (
        *((event.name, event.attributes) for event in span.events),
        *((log.event_name, log.attributes) for log in span.logs),
    )
    if (names.EVALUATION_RESULT, name) in {
        (event, fields.get(names.EVALUATION_NAME)) for event, fields in events
    }:
        return
    value = score(attributes, names.EVALUATION_SCORE_VALUE)
    label, why = (
        attributes.get(names.EVALUATION_SCORE_LABEL),
        attributes.get(names.EVALUATION_EXPLANATION),
    )
    for reward in _of_span(span, "span", [Judgement(name, value, label, why)]):
        reward.response_id = attributes.get(names.RESPONSE_ID) or None
        yield reward


def _laminar(span: Span) -> Iterator[Reward]:
    """Yield what an evaluator of Laminar's returned: a score of its trace, or named scores."""
    if span.attributes[LAMINAR_TYPE] != "EVALUATOR":
        return
    returned = json_text.parse(span.attributes[LAMINAR_OUTPUT])
    scores = returned if isinstance(returned, dict) else {span.name: returned}
    for name, value in scores.items():
        if (number := as_number(value)) is not None:
            yield Judgement(name, number).of(span, "laminar", span.trace_id, None)


def _honeyhive(span: Span) -> Iterator[Reward]:
    """Yield the rating in the feedback of HoneyHive's `enrich_span`."""
    value, why = score(span.attributes, HONEYHIVE), span.attributes.get(HONEYHIVE_COMMENT)
    label = span.attributes.get(HONEYHIVE) if value is None else None
    yield from _of_span(span, "honeyhive", [Judgement("rating", value, label, why)])


def _logfire(span: Span) -> Iterator[Reward]:
    """Yield the feedback of Logfire's `record_feedback`, for the parent of its span.

    Its name is the key of its value: a number, true or false, or a word.
    """
    name = span.attributes[LOGFIRE]
    value, why = score(span.attributes, name), span.attributes.get(LOGFIRE_COMMENT)
    label = span.attributes.get(name) if value is None else None
    if (judged := span.parent_span_id) and (value is not None or label):
        yield Judgement(name, value, label, why).of(span, "logfire", span.trace_id, judged)


def _openinference(span: Span) -> Iterator[Reward]:
    """Yield OpenInference's annotations and evaluations, which are two words for the same."""
    rewards: dict[tuple[str, Judgement], Reward] = {}
    for prefix, (word, target) in OPENINFERENCE.items():
        for item in _listed(span.attributes, prefix):
            fields = item.get(word) if isinstance(item, dict) else None
            if isinstance(fields, dict) and fields.get("name"):
                label, why = _text(fields, "label"), _text(fields, "explanation")
                judged = Judgement(fields["name"], score(fields, "score"), label, why)
                rewards[target, judged] = _openinference_reward(span, target, judged)
    yield from (one for one in rewards.values() if one.value is not None or one.label)


def _listed(attributes: Attributes, prefix: str) -> list[Any]:
    if not shape_of(attributes).has_any(prefix):
        return []
    listed = flattened.nested(attributes, prefix)
    return listed if isinstance(listed, list) else []


def _openinference_reward(span: Span, target: str, judged: Judgement) -> Reward:
    place = span.trace_id, span.span_id
    if span.attributes.get("openinference.span.kind", CARRIER) == CARRIER and len(span.links) == 1:
        (place,) = span.links
    if target == "span":
        return judged.of(span, "openinference", *place)
    if target == "trace":
        return judged.of(span, "openinference", place[0], None)
    reward = judged.of(span, "openinference", None, None)
    reward.rollout_id = reward.rollout_id or reading.conversation_id(span.attributes)
    return reward


def _pydantic(span: Span) -> Iterator[Reward]:
    """Yield the results of the evaluators of Pydantic Evals, on the span of a case."""
    if span.scope_name != PYDANTIC_SCOPE:
        return
    for key in PYDANTIC:
        results = json_text.as_object(json_text.parse(span.attributes[key]))
        for name, result in results.items():
            fields = json_text.as_object(result)
            value, label = as_number(fields.get("value")), _text(fields, "value")
            judged = Judgement(name, value, label, _text(fields, "reason"))
            yield from _of_span(span, "pydantic_evals", [judged])


def _trulens(span: Span) -> Iterator[Reward]:
    """Yield the score of a feedback function of TruLens, for the trace that it links to."""
    attributes = span.attributes
    name, why = attributes.get(f"{TRULENS}metric_name"), attributes.get(f"{TRULENS}explanation")
    value = score(attributes, f"{TRULENS}score")
    judged = {trace_id for trace_id, _ in span.links}
    if value is not None and len(judged) == 1:
        yield Judgement(name, value, None, why).of(span, "trulens", judged.pop(), None)


def _of_span(span: Span, source: str, judgements: Iterable[Judgement]) -> Iterator[Reward]:
    return (one.of(span, source) for one in judgements if one.value is not None or one.label)


def _text(fields: dict[str, Any], key: str) -> str | None:
    value = fields.get(key)
    return value if isinstance(value, str) and value else None
