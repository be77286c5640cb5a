"""Whether the content of a call is full or truncated."""

from typing import Any

import pytest
from support.regressions import by_span, rows_of
from support.spans import ANSWER, QUESTION, chat, span, text_message, tool_request, tool_response

from otel_lightning.collector.derive.assemble import derive


def test_a_call_whose_history_only_the_provider_has_is_truncated() -> None:
    rows = by_span(rows_of("conversation_held"))
    assert rows["2222"].content == "truncated"
    assert rows["2121"].content == "full"


def test_a_call_after_an_unknown_previous_response_is_truncated() -> None:
    given = span(
        chat(
            [text_message("user", "go on")],
            text_message("assistant", "so"),
            {"gen_ai.conversation.id": "resp_9"},
        )
    )
    (call,) = derive([given], []).llm_calls
    assert (call.content, call.conversation_id) == ("truncated", None)


def test_a_call_with_a_tool_response_and_no_request_is_truncated() -> None:
    given = span(chat([tool_response("call_1", "21 C")], text_message("assistant", "21 C")))
    (call,) = derive([given], []).llm_calls
    assert call.content == "truncated"


@pytest.mark.parametrize(
    ("parts", "content"),
    [
        ([], "truncated"),
        ([{"type": "text", "content": "Let me see."}], "truncated"),
        (tool_request("c1", "sun", {})["parts"], "full"),
    ],
)
def test_an_answer_that_lacks_the_tool_calls_of_its_reason_is_truncated(
    parts: list[dict[str, Any]], content: str
) -> None:
    answer = {"role": "assistant", "parts": parts, "finish_reason": "tool_calls"}
    (call,) = derive([span(chat([QUESTION], answer))], []).llm_calls
    assert (call.finish_reason, call.content) == ("tool_calls", content)


@pytest.mark.parametrize(("said", "content"), [("", "truncated"), ("Let me see.", "full")])
def test_an_input_in_which_a_turn_of_the_assistant_is_empty_is_truncated(
    said: str, content: str
) -> None:
    """Traceloop for LlamaIndex in JavaScript writes a tool's result as words of the user."""
    turn = {"role": "assistant", "parts": [{"type": "text", "content": said}]}
    result = {"role": "user", "parts": [{"type": "text", "content": "The sun shines."}]}
    (call,) = derive([span(chat([QUESTION, turn, result], ANSWER))], []).llm_calls
    assert call.content == content


@pytest.mark.parametrize(
    ("reason", "told"),
    [("completed", (None, "truncated")), ("end_turn", ("stop", "full"))],
)
def test_an_empty_answer_that_may_have_lost_its_tool_calls_is_truncated(
    reason: str, told: tuple[str | None, str]
) -> None:
    """OpenLIT writes no tool calls of responses, which are `completed`; `end_turn` has none."""
    answer = {"role": "assistant", "parts": [], "finish_reason": reason}
    reasons = {"gen_ai.response.finish_reasons": [reason]}
    (call,) = derive([span(chat([QUESTION], answer, reasons))], []).llm_calls
    assert (call.finish_reason, call.content) == told


@pytest.mark.parametrize(
    ("more", "content"),
    [
        ({"gen_ai.request.choice.count": 2}, "truncated"),
        ({"gen_ai.request.n": 2}, "truncated"),
        ({"gen_ai.request.choice.count": 1}, "full"),
        (
            {"gen_ai.request.stream": True, "gen_ai.response.finish_reasons": ["stop"] * 2},
            "truncated",
        ),
        ({"gen_ai.request.stream": True, "gen_ai.response.finish_reasons": ["stop"]}, "full"),
    ],
)
def test_an_answer_that_may_be_several_choices_joined_is_truncated(
    more: dict[str, Any], content: str
) -> None:
    (call,) = derive([span(chat([QUESTION], ANSWER, more))], []).llm_calls
    assert call.content == content


def test_several_choices_that_are_all_there_are_full() -> None:
    both = {"gen_ai.output.messages": [ANSWER, ANSWER], "gen_ai.request.choice.count": 2}
    reasons = {"gen_ai.response.finish_reasons": ["stop"] * 2, "gen_ai.request.stream": True}
    (call,) = derive([span(chat([QUESTION], ANSWER, both | reasons))], []).llm_calls
    assert call.content == "full"


@pytest.mark.parametrize(
    ("counts", "told"),
    [
        ({"output_tokens": 1, "cache_read.input_tokens": 0}, ("stop", "full")),
        ({"output_tokens": 9, "reasoning.output_tokens": 8}, ("stop", "full")),
        ({"output_tokens": 9, "cache_read.input_tokens": 0}, (None, "truncated")),
        # A package that counts the text itself counts lost tool calls as nothing.
        ({"output_tokens": 1}, (None, "truncated")),
    ],
)
def test_an_empty_answer_for_which_the_provider_counts_almost_no_tokens_lost_nothing(
    counts: dict[str, int], told: tuple[str | None, str]
) -> None:
    answer = {"role": "assistant", "parts": [], "finish_reason": "stop"}
    reasons = {"gen_ai.response.finish_reasons": ["stop"]}
    usage = {f"gen_ai.usage.{name}": count for name, count in counts.items()}
    (call,) = derive([span(chat([QUESTION], answer, reasons | usage))], []).llm_calls
    assert (call.finish_reason, call.content) == told
