"""Rewards that vendors write as attributes of spans, or as events of their own."""

import json
from typing import Any

import pytest
from support.spans import chat, log, span, text_message

from otel_lightning.collector.derive.assemble import derive
from otel_lightning.collector.derive.rows import Event, Reward, Span

RESULT = "gen_ai.evaluation.result"
CALL = chat([text_message("user", "Hi")], text_message("assistant", "Hello"))


def rewards_of(*spans: Span) -> list[Reward]:
    return derive(list(spans), []).rewards


def told(rewards: list[Reward]) -> list[tuple[Any, ...]]:
    return sorted((one.name, one.value, one.label, one.explanation) for one in rewards)


@pytest.mark.parametrize(
    "attributes",
    [
        {"braintrust.scores": {"right": 0.5, "polite": None}},
        {"braintrust.scores.right": 0.5},
        {"braintrust.scores": {"right": 0.5}, "braintrust.scores.right": 0.5},
    ],
)
def test_the_scores_of_braintrust_judge_their_span(attributes: dict[str, Any]) -> None:
    (reward,) = rewards_of(span(CALL | attributes, id="s1"))
    assert (reward.name, reward.value, reward.source) == ("right", 0.5, "braintrust")
    assert (reward.trace_id, reward.span_id, reward.rollout_id) == ("t1", "s1", "t1")


@pytest.mark.parametrize("word", ["annotation", "evaluation"])
def test_openinferences_feedback_is_a_reward_of_its_span(word: str) -> None:
    fields = {"name": "right", "score": 1, "label": "yes", "explanation": "as asked"}
    attributes = {f"{word}s.0.{word}.{key}": value for key, value in fields.items()}
    found = rewards_of(span(CALL | attributes, id="s1"))
    assert told(found) == [("right", 1.0, "yes", "as asked")]
    assert [one.span_id for one in found] == ["s1"]


def test_one_result_in_both_words_of_openinference_is_one_reward() -> None:
    both = {
        f"{word}s.0.{word}.{key}": value
        for word in ("annotation", "evaluation")
        for key, value in {"name": "right", "score": 1}.items()
    }
    assert told(rewards_of(span(CALL | both))) == [("right", 1.0, None, None)]


def test_feedback_of_openinference_without_a_result_is_no_reward() -> None:
    only = {"annotations.0.annotation.name": "right", "annotations.0.annotation.explanation": "?"}
    assert rewards_of(span(CALL | only)) == []


def test_openinferences_feedback_on_a_trace_or_a_session_names_no_span() -> None:
    attributes = {
        "session.id": "talk",
        "trace.annotations.0.annotation.name": "found",
        "trace.annotations.0.annotation.score": 0.9,
        "session.evaluations.0.evaluation.name": "coherent",
        "session.evaluations.0.evaluation.label": "yes",
    }
    found = {one.name: one for one in rewards_of(span(CALL | attributes))}
    assert (found["found"].trace_id, found["found"].span_id) == ("t1", None)
    assert (found["coherent"].trace_id, found["coherent"].rollout_id) == (None, "talk")


@pytest.mark.parametrize(("scope", "judged"), [("", "s1"), ("trace.", None)])
def test_feedback_on_a_span_of_its_own_judges_what_the_span_links_to(
    scope: str, judged: str | None
) -> None:
    attributes = {
        "openinference.span.kind": "EVALUATOR",
        f"{scope}evaluations.0.evaluation.name": "right",
        f"{scope}evaluations.0.evaluation.score": 0.25,
    }
    carrier = span(attributes, trace="t2", id="e1")._replace(links=(("t1", "s1"),))
    (reward,) = rewards_of(span(CALL, id="s1"), carrier)
    assert (reward.placed_trace_id, reward.placed_span_id) == ("t1", judged)
    assert (reward.trace_id, reward.span_id, reward.rollout_id) == ("t2", None, None)


def test_a_link_of_a_span_that_is_no_carrier_is_not_what_its_feedback_judges() -> None:
    attributes = {
        "openinference.span.kind": "CHAIN",
        "annotations.0.annotation.name": "right",
        "annotations.0.annotation.score": 1,
    }
    linking = span(attributes, id="c1")._replace(links=(("t9", "s9"),))
    assert [one.span_id for one in rewards_of(linking)] == ["c1"]


SCORED = {
    "gen_ai.evaluation.name": "right",
    "gen_ai.evaluation.score.value": "0.5",
    "gen_ai.evaluation.score.label": "UNKNOWN",
    "gen_ai.evaluation.explanation": "half of it",
}


def test_the_conventions_keys_on_a_span_are_a_reward() -> None:
    assert told(rewards_of(span(SCORED))) == [("right", 0.5, "UNKNOWN", "half of it")]


def test_an_event_that_says_the_same_as_its_span_is_not_counted_twice() -> None:
    event = Event(RESULT, 7, {key: str(value) for key, value in SCORED.items()})
    assert len(rewards_of(span(SCORED, events=(event,)))) == 1
    record = log(RESULT, SCORED, trace="t1", span_id="s1")
    assert len(derive([span(SCORED)], [record]).rewards) == 1


def test_a_judge_that_failed_gave_no_reward() -> None:
    failed = {"gen_ai.evaluation.name": "right", "error.type": "TimeoutError"}
    assert derive([], [log(RESULT, failed)]).rewards == []
    assert len(derive([], [log(RESULT, SCORED | {"error.type": "TimeoutError"})]).rewards) == 1


def evaluated(**fields: Any) -> Event:
    payload = json.dumps({"name": "right", "status": "processed", **fields})
    return Event("langwatch.evaluation.custom", 7, {"json_encoded_event": payload})


def test_langwatchs_evaluations_are_rewards_of_their_span() -> None:
    events = (
        evaluated(score=0.5, passed=True, label="good", details="why"),
        evaluated(name="checked", passed=False, score=None),
        evaluated(name="skipped", status="skipped", score=1),
        evaluated(name="failed", status="error", score=1),
    )
    found = rewards_of(span(CALL, id="s1", events=events))
    assert told(found) == [("checked", 0.0, None, None), ("right", 0.5, "good", "why")]
    assert {one.span_id for one in found} == {"s1"}


def test_what_an_evaluator_of_laminar_returned_judges_its_trace() -> None:
    def evaluator(name: str, returned: Any, kind: str = "EVALUATOR") -> Span:
        attributes = {"lmnr.span.type": kind, "lmnr.span.output": returned}
        return span(attributes, id=f"{name}{kind}", name=name)

    several = evaluator("both", {"fast": 1, "right": 0.5})
    others = evaluator("text", "no score"), evaluator("task", 7, "EXECUTOR")
    found = rewards_of(evaluator("short", returned=True), several, *others)
    assert [one[:2] for one in told(found)] == [("fast", 1.0), ("right", 0.5), ("short", 1.0)]
    assert {(one.trace_id, one.span_id) for one in found} == {("t1", None)}


def test_the_results_of_pydantic_evals_judge_their_case() -> None:
    case = {
        "assertions": {"right": {"name": "right", "value": True, "reason": "as asked"}},
        "scores": {"near": {"name": "near", "value": 0.5, "reason": None}},
        "labels": {"tone": {"name": "tone", "value": "kind", "reason": None}},
    }
    found = rewards_of(span(case, scope="pydantic-evals"))
    assert [one[:3] for one in told(found)] == [
        ("near", 0.5, None),
        ("right", 1.0, None),
        ("tone", None, "kind"),
    ]
    assert rewards_of(span(case, scope="somebody")) == []


def test_trulens_judges_the_trace_that_its_evaluation_links_to() -> None:
    attributes = {
        "ai.observability.span_type": "eval_root",
        "ai.observability.eval_root.metric_name": "relevance",
        "ai.observability.eval_root.score": 0.75,
    }
    evaluation = span(attributes, trace="t2", id="e1")
    assert rewards_of(evaluation) == []
    (reward,) = rewards_of(evaluation._replace(links=(("t1", "s1"),)))
    assert (reward.name, reward.value) == ("relevance", 0.75)
    assert (reward.placed_trace_id, reward.placed_span_id) == ("t1", None)


@pytest.mark.parametrize(
    "attributes",
    [
        {"braintrust.metrics.tokens": 7},
        {"honeyhive_metrics.latency": 3},
        {"scores": {"near": 0.5}},
        {"annotations.0.text": "a page"},
    ],
)
def test_other_numbers_on_spans_are_no_rewards(attributes: dict[str, Any]) -> None:
    assert rewards_of(span(CALL | attributes)) == []


def test_a_reward_of_a_span_keeps_its_id_when_it_is_delivered_twice() -> None:
    given = span(CALL | {"braintrust.scores": {"right": 0.5}})
    assert rewards_of(given, given) == rewards_of(given)


@pytest.mark.parametrize(
    ("given", "wanted"),
    [(0.1, (0.1, None)), (True, (1.0, None)), ("good", (None, "good")), (None, None)],
)
def test_logfires_feedback_judges_the_parent_of_its_span(given: Any, wanted: Any) -> None:
    attributes = {
        "logfire.span_type": "annotation",
        "logfire.feedback.name": "factuality",
        "logfire.feedback.comment": "it lied",
    } | ({} if given is None else {"factuality": given})
    found = rewards_of(span(CALL, id="s1"), span(attributes, id="f1", parent="s1"))
    assert [(one.value, one.label) for one in found] == ([] if wanted is None else [wanted])
    for one in found:
        assert (one.name, one.explanation, one.source) == ("factuality", "it lied", "logfire")
        assert (one.trace_id, one.span_id, one.rollout_id) == ("t1", "s1", "t1")


@pytest.mark.parametrize(
    ("rating", "wanted"), [(True, (1.0, None)), (4, (4.0, None)), ("good", (None, "good"))]
)
def test_the_rating_in_honeyhives_feedback_judges_its_span(rating: Any, wanted: Any) -> None:
    feedback = {"rating": rating, "comment": "as asked", "ground_truth": "Hello!"}
    attributes = {f"honeyhive_feedback.{name}": value for name, value in feedback.items()}
    (reward,) = rewards_of(span(CALL | attributes, id="s1"))
    assert (reward.name, reward.explanation, reward.source) == ("rating", "as asked", "honeyhive")
    assert (reward.value, reward.label) == wanted
    assert (reward.trace_id, reward.span_id) == ("t1", "s1")
