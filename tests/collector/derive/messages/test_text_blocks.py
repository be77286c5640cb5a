"""Blocks of text that a package spelled as Python does."""

from support.spans import chat, only_call, span, text_message, tool_response


def test_text_blocks_that_python_spelled_are_texts() -> None:
    """OpenLIT writes so what an agent gave as a list of blocks."""
    spelled = "[{'type': 'text', 'text': 'Be brief.', 'cache_control': {'type': 'ephemeral'}}]"
    history = [
        text_message("system", spelled),
        text_message("user", "Sun?"),
        tool_response("c1", spelled),
    ]
    call = only_call(span(chat(history, text_message("assistant", "Yes."))))
    assert call.input_messages == [
        text_message("system", "Be brief."),
        text_message("user", "Sun?"),
        tool_response("c1", "Be brief."),
    ]
