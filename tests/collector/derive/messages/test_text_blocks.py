"""Blocks of text that a package spelled as Python does."""

from support.spans import answered, chat, only_call, said, span


def test_text_blocks_that_python_spelled_are_texts() -> None:
    """OpenLIT writes so what an agent gave as a list of blocks."""
    spelled = "[{'type': 'text', 'text': 'Be brief.', 'cache_control': {'type': 'ephemeral'}}]"
    history = [said("system", spelled), said("user", "Sun?"), answered("c1", spelled)]
    call = only_call(span(chat(history, said("assistant", "Yes."))))
    assert call.input_messages == [
        said("system", "Be brief."),
        said("user", "Sun?"),
        answered("c1", "Be brief."),
    ]
