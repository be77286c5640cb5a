"""promptfoo's dialect."""

from typing import Any

import pytest
from support.captures import load
from support.dialects_page import DATA
from support.spans import read_call, span, text_message

from otel_lightning.collector.derive.assemble import derive

CALL = {
    "gen_ai.operation.name": "chat",
    "gen_ai.request.model": "m",
    "promptfoo.provider.id": "openai:chat:m",
    "promptfoo.request.body": "Is it sunny?",
    "promptfoo.response.body": "It is.",
}


def test_a_prompt_and_an_answer_that_are_texts_are_messages() -> None:
    call = read_call(span(CALL))
    assert (call.dialect, call.content) == ("promptfoo", "full")
    assert call.input_messages == [text_message("user", "Is it sunny?")]
    assert call.output_messages == [text_message("assistant", "It is.")]


def test_a_prompt_that_is_json_but_no_messages_is_a_text() -> None:
    call = read_call(span(CALL | {"promptfoo.request.body": "[1, 2]"}))
    assert call.input_messages == [text_message("user", "[1, 2]")]


@pytest.mark.parametrize(
    "other",
    [
        {"promptfoo.request.body": "- role: user\n  content: Is it sunny?"},
        {"promptfoo.request.body": "Is it... [truncated]"},
        {"promptfoo.response.body": "The key is <REDACTED_API_KEY>"},
        {"promptfoo.response.body": "Thinking: I look.\n\nIt is."},
    ],
)
def test_a_text_of_which_a_part_is_not_known_is_truncated(other: dict[str, Any]) -> None:
    assert read_call(span(CALL | other)).content == "truncated"


def test_reasoning_and_tool_calls_are_apart_from_the_text_of_an_answer() -> None:
    asked = '{"type":"tool_use","id":"c1","name":"sun","input":{"city":"Oslo"}}'
    answer = f"Thinking: I look.\nSignature: c2ln\n\nLet me look.\n\n{asked}"
    call = read_call(span(CALL | {"promptfoo.response.body": answer}))
    (said,) = call.output_messages or []
    assert said["parts"] == [
        {"type": "reasoning", "content": "I look."},
        {"type": "text", "content": "Let me look."},
        {"type": "tool_call", "id": "c1", "name": "sun", "arguments": {"city": "Oslo"}},
    ]


def test_recorded_answers_without_reasoning_are_whole() -> None:
    states = set()
    for recording in ("texts", "tools"):
        capture = load(DATA / "promptfoo" / f"{recording}.truth.json")
        for call in derive(capture.spans, capture.logs).llm_calls:
            states.add((call.content, "#think" in str(call.input_messages)))
    assert states == {("full", False), ("truncated", True)}


def test_the_scores_of_a_test_case_are_the_rewards_of_its_call() -> None:
    capture = load(DATA / "promptfoo" / "texts.truth.json")
    derived = derive(capture.spans, capture.logs)
    answers = {call.rollout_id: str(call.output_messages) for call in derived.llm_calls}
    of_contains = [one for one in derived.rewards if one.name == "contains"]
    assert len(of_contains) == len(derived.llm_calls) / 2
    assert all(one.value == ("sun" in answers[one.rollout_id]) for one in of_contains)
