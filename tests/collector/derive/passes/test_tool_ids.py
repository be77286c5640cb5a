"""Ids of tool calls that differ from those of their responses."""

from support.spans import asked, chat, said, span

from otel_lightning.collector.derive.assemble import derive


def test_a_text_after_tool_calls_does_not_part_them_from_their_responses() -> None:
    answer = {
        "role": "tool",
        "parts": [{"type": "tool_call_response", "id": "call_1", "response": "It shines."}],
    }
    calls, text = asked("fc_1", "sun", {"city": "Rome"}), said("assistant", "I look.")
    for turn in ([calls, text], [text, calls]):
        history = [said("user", "Sun in Rome?"), *turn, answer]
        (call,) = derive([span(chat(history, said("assistant", "Yes.")))], []).llm_calls
        parts = [part for message in call.input_messages or [] for part in message["parts"]]
        assert [part["id"] for part in parts if "id" in part] == ["call_1", "call_1"]
