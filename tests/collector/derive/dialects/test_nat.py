"""The dialect of NVIDIA's NeMo Agent Toolkit."""

import pytest
from support.spans import only_call, span

NAT = {"nat.span.kind": "LLM", "openinference.span.kind": "LLM", "llm.token_count.total": 3}


def test_tool_calls_that_nat_spells_after_a_text_are_read() -> None:
    asked = [{"id": "c1", "type": "function", "function": {"name": "sun", "arguments": "{}"}}]
    call = only_call(span(NAT | {"output.value": f"Let me look\n\nTool calls: {asked}"}))
    (answer,) = call.output_messages or []
    assert answer["parts"] == [
        {"type": "text", "content": "Let me look"},
        {"type": "tool_call", "id": "c1", "name": "sun", "arguments": {}, "arguments_raw": "{}"},
    ]


def test_an_answer_of_nat_that_speaks_of_tool_calls_stays_whole() -> None:
    text = "Two kinds:\n\nTool calls: of the model, and others"
    call = only_call(span(NAT | {"output.value": text}))
    (answer,) = call.output_messages or []
    assert answer["parts"] == [{"type": "text", "content": text}]


@pytest.mark.parametrize(("written", "known"), [("unknown", None), ("c7", "c7")])
def test_nats_unknown_conversation_is_none(written: str, known: str | None) -> None:
    call = only_call(span(NAT | {"nat.conversation.id": written, "output.value": "Hello"}))
    assert call.conversation_id == known
