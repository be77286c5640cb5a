"""Tool calls that a sender leaves out of histories, and that earlier answers have."""

import pytest
from support.captures import load
from support.dialects_page import DATA
from support.spans import chat, span, text_message, tool_request

from otel_lightning.collector.derive.assemble import derive
from otel_lightning.collector.derive.rows import Message, Span

QUESTION, ANSWER = text_message("user", "Sun in Rome?"), text_message("assistant", "Yes.")
ASKS = tool_request("call_1", "sun", {"city": "Rome"})
SENTRY = "@sentry/node"
NAMELESS = text_message("assistant", "")
RESULT = {"role": "tool", "parts": [{"type": "text", "content": "It shines."}]}


def test_sentrys_inputs_of_langchain_have_their_tool_calls() -> None:
    capture = load(DATA / "js_sentry" / "langchain.truth.json")
    derived = derive(capture.spans, capture.logs)
    true = capture.truth["llm_calls"]
    assert [ids(call.input_messages) for call in derived.llm_calls] == [
        [one["tool_call_id"] for one in sent["input_messages"] if one["role"] == "tool"]
        for sent in true
    ]
    assert [call.content for call in derived.llm_calls] == ["full"] * len(true)
    assert len({call.rollout_id for call in derived.llm_calls}) == len({c["task"] for c in true})


def ids(messages: list[Message] | None) -> list[str]:
    """Return the ids of the tool calls, after checking that those of the results are the same."""
    parts = [part for message in messages or () for part in message["parts"]]
    asked = [part["id"] for part in parts if part["type"] == "tool_call"]
    assert asked == [part["id"] for part in parts if part["type"] == "tool_call_response"]
    return asked


def asking(said: Message, name: str, *, at: float = 0, trace: str = "1") -> Span:
    given = chat([QUESTION], said)
    return span(given, trace=trace, id=name, parent="a", at=at, scope=SENTRY)


def answered(*results: Message, scope: str = SENTRY) -> Span:
    given = chat([QUESTION, NAMELESS, *results], ANSWER)
    return span(given, trace="1", id="z", parent="a", at=9, scope=scope)


@pytest.mark.parametrize(
    ("before", "results", "content"),
    [
        ([asking(ASKS, "b")], 1, "full"),
        # Of two calls that fit nothing says which one it was.
        ([asking(ASKS, "b"), asking(tool_request("call_2", "sun", {}), "c")], 1, "truncated"),
        # Another number of results, a call of another trace, one that ended too late, none.
        ([asking(ASKS, "b")], 2, "truncated"),
        ([asking(ASKS, "b", trace="2")], 1, "truncated"),
        ([asking(ASKS, "b", at=9)], 1, "truncated"),
        ([], 1, "truncated"),
    ],
)
def test_an_input_gets_its_tool_calls_only_from_the_one_call_that_fits(
    before: list[Span], results: int, content: str
) -> None:
    calls = derive([*before, answered(*[RESULT] * results)], []).llm_calls
    (call,) = (call for call in calls if len(call.input_messages or ()) > 1)
    assert call.content == content
    kinds = [part["type"] for one in call.input_messages or () for part in one["parts"]]
    assert ("tool_call" in kinds) == (content == "full")


def test_a_sender_whose_results_may_have_another_order_keeps_its_inputs() -> None:
    calls = derive([asking(ASKS, "b"), answered(RESULT, scope="tan")], []).llm_calls
    assert [call.content for call in calls] == ["full", "truncated"]
