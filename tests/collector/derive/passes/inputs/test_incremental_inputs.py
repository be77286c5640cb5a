"""Inputs of which an instrumentation wrote only what was new."""

from typing import Any

from support.captures import load
from support.dialects_page import DATA
from support.spans import chat, span, text_message, tool_request, tool_response

from otel_lightning.collector.derive.assemble import derive
from otel_lightning.collector.derive.rows import LlmCall, Span

QUESTION = text_message("user", "Is it sunny in Rome?")
REQUEST, RESULT = tool_request("c1", "sun", {"city": "Rome"}), tool_response("c1", "It shines.")
ANSWER = text_message("assistant", "It is.")
TALK = {"gen_ai.conversation.id": "talk"}


def call(id: str, at: float, *turns: Any, parent: str = "run", **more: Any) -> Span:  # noqa: A002
    """Return a model call; the last turn is its answer."""
    *sent, answer = turns
    return span({**chat(sent, answer), **TALK, **more}, id=id, parent=parent, at=at, ends=at + 0.5)


def rows(*spans: Span) -> dict[str, LlmCall]:
    return {one.span_id: one for one in derive(spans, []).llm_calls}


def test_the_calls_of_copilots_first_turns_are_whole_and_of_later_ones_truncated() -> None:
    capture = load(DATA / "copilot_cli" / "tasks.truth.json")
    calls = derive(capture.spans, capture.logs).llm_calls
    talks: dict[str | None, list[str]] = {}
    for one in calls:
        talks.setdefault(one.rollout_id, []).append(one.content)
    assert list(talks.values()) == [
        ["full", "full", "truncated", "truncated"],
        ["full"] * 2,
        ["full"],
    ]


def test_the_turns_before_a_tools_response_are_those_of_the_call_that_asked() -> None:
    system = text_message("system", "Answer about the weather.")
    found = rows(call("a", 0, system, QUESTION, REQUEST), call("b", 1, system, RESULT, ANSWER))
    assert found["b"].input_messages == [system, QUESTION, REQUEST, RESULT]
    assert (found["b"].content, found["b"].step) == ("full", 1)


def test_a_call_of_another_run_did_not_ask() -> None:
    found = rows(call("a", 0, QUESTION, REQUEST), call("b", 1, RESULT, ANSWER, parent="other"))
    assert (found["b"].input_messages, found["b"].content) == ([RESULT], "truncated")


def test_ids_that_two_open_calls_have_identify_neither() -> None:
    """Some servers number the tool calls of each answer anew."""
    other = text_message("user", "And in Oslo?")
    asks = call("a", 0, QUESTION, REQUEST), call("b", 0.1, other, REQUEST)
    found = rows(*asks, call("c", 1, RESULT, ANSWER))
    assert (found["c"].input_messages, found["c"].content) == ([RESULT], "truncated")


def test_each_round_of_tools_continues_the_one_before() -> None:
    found = rows(
        call("a", 0, QUESTION, REQUEST),
        call("b", 1, RESULT, REQUEST),
        call("c", 2, RESULT, ANSWER),
    )
    assert found["c"].input_messages == [QUESTION, REQUEST, RESULT, REQUEST, RESULT]


def test_a_later_turn_of_a_conversation_that_is_recorded_in_pieces_is_truncated() -> None:
    again = text_message("user", "And in Oslo?")
    second = tool_request("c2", "sun", {"city": "Oslo"}), tool_response("c2", "It does not.")
    turn = call("c", 2, again, second[0]), call("d", 3, second[1], ANSWER)
    pieces = rows(call("a", 0, QUESTION, REQUEST), call("b", 1, RESULT, ANSWER), *turn)
    assert [one.content for one in pieces.values()] == ["full", "full", "truncated", "truncated"]
    whole = rows(call("a", 0, QUESTION, ANSWER), call("c", 2, again, ANSWER))
    assert [one.content for one in whole.values()] == ["full", "full"]


def test_inputs_that_lack_only_what_the_model_asked_for_are_completed() -> None:
    """OpenLIT drops messages without text."""
    second = tool_request("c2", "sun", {"city": "Oslo"}), tool_response("c2", "It does not.")
    found = rows(
        call("a", 0, QUESTION, REQUEST),
        call("b", 1, QUESTION, RESULT, second[0]),
        call("c", 2, QUESTION, RESULT, second[1], ANSWER),
    )
    assert found["c"].input_messages == [QUESTION, REQUEST, RESULT, *second]
    assert [one.content for one in found.values()] == ["full"] * 3
