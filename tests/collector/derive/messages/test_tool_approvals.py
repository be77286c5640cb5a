"""What the AI SDK keeps of a person's approval of a tool, which models do not get."""

from typing import Any

import pytest
from support.captures import load
from support.dialects_page import DATA
from support.spans import chat, span, text_message, tool_request

from otel_lightning.collector.derive.assemble import derive
from otel_lightning.collector.derive.histories.message_hashes import hashes_of
from otel_lightning.collector.derive.messages import messages

CALL = {"type": "tool_call", "id": "c1", "name": "sun", "arguments": {}}
TOLD = [
    "Error: Tool call invocation was rejected by user.",
    "The tool call was denied.",
    "Tool execution was not approved.",
    "User rejected the tool call for `sun` with reason: Too dear.",
    "User rejected the tool call for `sun` with id c1. The tool was not executed.",
]
"""What frameworks tell the model of a tool that was not approved."""
DENIED = [{"denied": True, "reason": "not now"}, {"type": "execution-denied", "reason": "not now"}]


def result(response: Any, call_id: str = "c1") -> dict[str, Any]:
    """Return the message that tells a tool's result."""
    part = {"type": "tool_call_response", "id": call_id, "response": response}
    return {"role": "tool", "parts": [part]}


def test_a_conversation_goes_on_after_an_approval() -> None:
    history = [
        text_message("user", "Is it sunny?"),
        {"role": "assistant", "parts": [CALL, {"type": "tool-approval-request"}]},
        {"role": "tool", "parts": [{"type": "tool-approval-response"}]},
        result("It is."),
    ]
    spans = [
        span(chat(history[:1], tool_request("c1", "sun", {})), trace="t1", id="s1"),
        span(chat(history, text_message("assistant", "Yes")), trace="t2", id="s2", at=9),
    ]
    derived = derive(spans, [])
    assert len({call.rollout_id for call in derived.llm_calls}) == 1
    sent = derived.llm_calls[1].input_messages or []
    assert [message["role"] for message in sent] == ["user", "assistant", "tool"]
    assert [tool.result for tool in derived.tool_calls] == ["It is."]


@pytest.mark.parametrize("response", DENIED)
def test_the_reason_of_a_denial_is_what_the_model_gets(response: Any) -> None:
    (message,) = messages.conversation([result(response)])
    assert message["parts"][0]["response"] == "not now"
    (message,) = messages.conversation([result({**response, "reason": None})])
    assert message["parts"][0]["response"] == "Tool call execution denied."


@pytest.mark.parametrize(
    "response", [*DENIED, {"denied": True}, {"type": "execution-denied"}, *TOLD]
)
def test_a_tool_that_was_denied_did_not_run(response: Any) -> None:
    question = text_message("user", "Is it sunny and dry?")
    dry = {**CALL, "id": "c2", "name": "rain"}
    asked = {"role": "assistant", "parts": [CALL, dry]}
    history = [question, asked, result(response), result("It is.", "c2")]
    spans = [
        span(chat([question], asked), trace="t1", id="s1"),
        span(chat(history, text_message("assistant", "Dry.")), trace="t2", id="s2", at=9),
    ]
    derived = derive(spans, [])
    assert [(tool.name, tool.result) for tool in derived.tool_calls] == [("rain", "It is.")]
    answers = [
        part
        for message in (derived.llm_calls[1].input_messages or [])
        for part in message["parts"]
        if part["type"] == "tool_call_response"
    ]
    assert [part.get("denied") for part in answers] == [True, None]


@pytest.mark.parametrize("recording", ["js_vercel_ai/denied", "js_vercel_ai_7/denied"])
def test_only_the_tool_that_a_person_approved_ran(recording: str) -> None:
    capture = load(DATA / f"{recording}.truth.json")
    derived = derive(capture.spans, capture.logs)
    ran = [tool["name"] for tool in capture.truth["tool_executions"]]
    assert [tool.name for tool in derived.tool_calls] == ran


def test_a_tool_that_ran_and_returned_such_an_object_has_its_row() -> None:
    question = text_message("user", "May I?")
    history = [question, {"role": "assistant", "parts": [CALL]}, result({"denied": True})]
    execution = {
        "gen_ai.operation.name": "execute_tool",
        "gen_ai.tool.name": "sun",
        "gen_ai.tool.call.id": "c1",
        "gen_ai.tool.call.result": '{"denied": true}',
    }
    spans = [
        span(chat([question], tool_request("c1", "sun", {})), id="s1"),
        span(execution, id="s2", at=5),
        span(chat(history, text_message("assistant", "No.")), id="s3", at=9),
    ]
    (tool,) = derive(spans, []).tool_calls
    assert tool.span_id == "s2"


def test_two_records_of_one_conversation_agree_if_one_lacks_the_mark_of_a_denial() -> None:
    marked, plain = (messages.conversation([result(one)])[0] for one in (DENIED[0], "not now"))
    assert marked != plain
    assert hashes_of(marked) == hashes_of(plain)


def test_an_object_that_only_resembles_a_denial_is_kept() -> None:
    other = {**DENIED[0], "by": "the tool"}
    (message,) = messages.conversation([result(other)])
    assert message["parts"][0]["response"] == other
