"""Rewards, arms and tasks that spans, events and log records name."""

from typing import Any

import pytest
from support.spans import ANSWER, QUESTION, chat, log, span

from otel_lightning.collector.derive.assemble import derive
from otel_lightning.collector.derive.rows import Event

EVALUATION = "gen_ai.evaluation.result"
ANNOTATION = "agentlightning.annotation"


def judged(value: float, **more: Any) -> Event:
    said_ = {"gen_ai.evaluation.name": "solved", "gen_ai.evaluation.score.value": str(value)}
    return Event(EVALUATION, 7, {**said_, **more})


def test_an_evaluation_event_is_a_reward_for_the_span_that_carries_it() -> None:
    carrier = span(chat([QUESTION], ANSWER), id="s1", events=(judged(0.5),))
    (reward,) = derive([carrier], []).rewards
    assert (reward.name, reward.value, reward.span_id) == ("solved", 0.5, "s1")
    assert reward.rollout_id == "t1"


@pytest.mark.parametrize("text", ["NaN", "Infinity", "-Infinity"])
def test_a_reward_that_is_not_finite_stays_a_number(text: str) -> None:
    said_ = {"gen_ai.evaluation.score.value": text}
    carrier = span({}, events=(Event(EVALUATION, 7, said_),))
    annotated = span({"agentlightning.reward.0.value": text}, name=ANNOTATION, id="b")
    rewards = derive([carrier, annotated], [log(EVALUATION, said_, at=3)]).rewards
    assert [str(reward.value) for reward in rewards] == [str(float(text))] * 3


def test_an_evaluation_log_without_a_trace_names_a_response() -> None:
    attributes = {
        "gen_ai.evaluation.name": "solved",
        "gen_ai.evaluation.score.label": "pass",
        "gen_ai.response.id": "r1",
    }
    (reward,) = derive([], [log(EVALUATION, attributes, at=3)]).rewards
    assert (reward.response_id, reward.label, reward.value) == ("r1", "pass", None)
    assert (reward.trace_id, reward.rollout_id, reward.source) == (None, None, "log")


def test_a_reward_delivered_twice_is_one_and_keeps_its_id() -> None:
    carrier = span({}, events=(judged(1.0),))
    record = log(EVALUATION, {"gen_ai.evaluation.name": "solved"}, at=3)
    once, twice = derive([carrier], [record]), derive([carrier] * 2, [record] * 2)
    assert once.rewards == twice.rewards
    assert len({reward.reward_id for reward in once.rewards}) == 2


def test_two_judgements_of_one_span_are_two_rewards() -> None:
    assert len(derive([span({}, events=(judged(1.0), judged(0.0)))], []).rewards) == 2


def test_an_agentlightning_annotation_rewards_the_rollout_of_its_resource() -> None:
    attributes = {"agentlightning.reward.0.value": 0.75}
    resource = {"agentlightning.rollout_id": "ro-1"}
    given = span(attributes, name=ANNOTATION, resource=resource)
    (reward,) = derive([given], []).rewards
    assert (reward.name, reward.value, reward.rollout_id) == ("primary", 0.75, "ro-1")
    assert reward.span_id is None


def test_an_agentlightning_annotation_judges_the_response_that_it_links_to() -> None:
    link = {"key_match": "gen_ai.response.id", "value_match": "r2"}
    attributes = {f"agentlightning.link.0.{key}": value for key, value in link.items()}
    given = span({"agentlightning.reward.0.value": 0.5} | attributes, name=ANNOTATION)
    (reward,) = derive([given], []).rewards
    assert (reward.response_id, reward.value) == ("r2", 0.5)


def test_rewards_of_earlier_agentlightning_and_of_agentops_are_read() -> None:
    earlier = span({"reward": 0.25}, name=ANNOTATION, id="a")
    returned = {"agentops.task.output": '{"type": "reward", "value": 0.5}'}
    other = {"agentops.task.output": '{"type": "report", "value": 9}'}
    spans = [earlier, span(returned, id="b", at=1), span(other, id="c", at=2)]
    assert [reward.value for reward in derive(spans, []).rewards] == [0.25, 0.5]


def test_a_flag_evaluation_is_an_arm_with_its_propensity() -> None:
    chosen = {
        "feature_flag.key": "prompt",
        "feature_flag.result.variant": "terse",
        "lightning.propensity": "0.25",
        "lightning.policy.version": "v3",
    }
    carrier = span(
        {"lightning.rollout.id": "r1"}, events=(Event("feature_flag.evaluation", 1, chosen),)
    )
    record = log("feature_flag.evaluation", chosen, trace="t1", span_id="s1", at=2)
    derived = derive([carrier], [record])
    assert [(arm.key, arm.arm, arm.propensity) for arm in derived.arms] == [
        ("prompt", "terse", 0.25)
    ] * 2
    assert {(arm.policy_version, arm.rollout_id) for arm in derived.arms} == {("v3", "r1")}


def test_a_task_is_known_by_its_rollout() -> None:
    given = span(chat([QUESTION], ANSWER, {"lightning.task.id": "task-7"}))
    assert derive([given], []).tasks == {"t1": "task-7"}


def test_feedback_in_azure_ai_foundrys_earlier_form_is_a_reward_of_the_response() -> None:
    attributes = {"gen_ai.response.id": "r1", "gen_ai.evaluation.score": -0.5}
    said = log("gen_ai.evaluation.user_feedback", attributes, body={"comment": "too long"})
    carrier = span(chat([QUESTION], ANSWER) | {"gen_ai.response.id": "r1"}, id="s1")
    (reward,) = derive([carrier], [said]).rewards
    assert (reward.name, reward.value, reward.explanation) == ("user_feedback", -0.5, "too long")
    assert (reward.response_id, reward.source) == ("r1", "log")


def test_score_of_azure_ai_foundrys_evaluators_is_named_by_its_event() -> None:
    attributes = {"gen_ai.response_id": "r1", "gen_ai.evaluation.score": 4}
    said = log("gen_ai.evaluation.relevance", attributes, trace="t1", span_id="s1")
    (reward,) = derive([span(chat([QUESTION], ANSWER), id="s1")], [said]).rewards
    assert (reward.name, reward.value, reward.response_id) == ("relevance", 4.0, "r1")
    assert (reward.trace_id, reward.span_id, reward.rollout_id) == ("t1", "s1", "t1")


def test_event_of_an_evaluation_without_a_score_is_no_reward() -> None:
    assert (
        derive([], [log("gen_ai.evaluation.started", {"gen_ai.response.id": "r1"})]).rewards == []
    )
