"""What the AI SDK keeps of a person's approval of a tool, which models do not get."""

from typing import Any

import pytest
from support.spans import chat, span, text_message, tool_request

from otel_lightning.collector.derive.assemble import derive
from otel_lightning.collector.derive.messages import messages

CALL = {"type": "tool_call", "id": "c1", "name": "sun", "arguments": {}}
DENIED = [{"denied": True, "reason": "not now"}, {"type": "execution-denied", "reason": "not now"}]


def result(response: Any) -> dict[str, Any]:
    """Return the message that tells a tool's result."""
    part = {"type": "tool_call_response", "id": "c1", "response": response}
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


def test_an_object_that_only_resembles_a_denial_is_kept() -> None:
    other = {**DENIED[0], "by": "the tool"}
    (message,) = messages.conversation([result(other)])
    assert message["parts"][0]["response"] == other
