"""Messages and tool calls that a package wrote as the `repr()` of Python objects."""

from typing import Any

import pytest
from support.spans import chat, only_call, span, text_message, tool_request

from otel_lightning.collector.derive.text import repr_objects

PLAIN_QUESTION = {"role": "user", "content": "Is it sunny in Rome?"}
CALL = "id='c1', function=F(name='sun', arguments='{}')"
SPELLED = (
    f"role='assistant' content='So.' tool_calls=[Call({CALL}, type='function')] prefix=False",
    f"Message(content='So.', role='assistant', tool_calls=[Call({CALL})])",
)


ASKS = "{'type': 'function_call', 'call_id': 'c1', 'name': 'sun', 'arguments': '{}'}"
REFUSAL = [{"type": "text", "content": "No."}]


@pytest.mark.parametrize("spelled", SPELLED)
def test_messages_that_a_package_wrote_as_pydantics_text_are_read(spelled: str) -> None:
    """OpenInference for Mistral writes so what an agent sends back as it got it."""
    request = {"model": "m", "messages": [PLAIN_QUESTION, spelled]}
    call = only_call(
        span({"openinference.span.kind": "LLM", "llm.model_name": "m", "input.value": request})
    )
    asks = tool_request("c1", "sun", {})["parts"][0] | {"arguments_raw": "{}"}
    parts = [*text_message("assistant", "So.")["parts"], asks]
    assert (call.input_messages or [])[1:] == [{"role": "assistant", "parts": parts}]


def test_a_text_that_speaks_of_a_role_is_the_users() -> None:
    text = "role='assistant' is what I want"
    call = only_call(span(chat([text], text_message("assistant", "Yes."))))  # type: ignore[list-item]
    assert call.input_messages == [text_message("user", text)]


def test_tool_calls_that_dspy_spells_beside_a_text_are_read() -> None:
    """DSPy's OpenInference writes each tool call of an answer as Python's text."""
    answer = [{"text": "So.", "tool_calls": [f"ChatCompletionMessageToolCall({CALL})"]}]
    keys = {"openinference.span.kind": "LLM", "llm.model_name": "m", "output.value": answer}
    (output,) = only_call(span(keys)).output_messages or ()
    asks = tool_request("c1", "sun", {})["parts"][0] | {"arguments_raw": "{}"}
    assert output["parts"] == [*text_message("assistant", "So.")["parts"], asks]


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        (f"{{'id': '__fake_id__', 'object': 'response', 'output': [{ASKS}]}}", None),
        ("{'role': 'assistant', 'content': None, 'refusal': 'No.'}", REFUSAL),
        ("Said(role='assistant', content=[Refusal(refusal='No.', type='refusal')])", REFUSAL),
        ("[{'refusal': 'No.', 'type': 'refusal'}]", REFUSAL),
        ("[{'city': 'Rome'}]", [{"type": "text", "content": "[{'city': 'Rome'}]"}]),
    ],
)
def test_what_the_early_package_for_openais_agents_spells_is_read(
    text: str, parts: list[dict[str, Any]] | None
) -> None:
    """The responses of streamed chat completions, refusals, and blocks of a content."""
    messages = [{"role": "assistant", "parts": [{"type": "text", "content": text}]}]
    keys = {
        "gen_ai.operation.name": "chat",
        "gen_ai.agent.description": "OpenAI Agents instrumentation",
        "gen_ai.output.messages": messages,
    }
    (output,) = only_call(span(keys)).output_messages or ()
    asks = tool_request("c1", "sun", {})["parts"][0] | {"arguments_raw": "{}"}
    assert output["parts"] == (parts or [asks])


def test_the_response_that_an_answer_of_smolagents_spells_is_read() -> None:
    raw = (
        "ChatCompletion(id='r1', choices=[Choice(finish_reason='tool_calls', index=0, message="
        f"Message(content=None, role='assistant', tool_calls=[Call({CALL})]))], model='m-1')"
    )
    keys = {"openinference.span.kind": "LLM", "llm.model_name": "m", "llm.token_count.total": 3}
    call = only_call(
        span(keys | {"output.value": {"role": "assistant", "content": None, "raw": raw}})
    )
    assert (call.response_id, call.response_model) == ("r1", "m-1")
    asks = tool_request("c1", "sun", {})["parts"][0] | {"arguments_raw": "{}"}
    assert call.output_messages == [
        {"role": "assistant", "parts": [asks], "finish_reason": "tool_calls"}
    ]


def test_a_function_within_a_function_is_unknown() -> None:
    spelled = "Tool(name='sun', function=<function run.<locals>.<lambda> at 0x7fb1>, on=True)"
    assert repr_objects.parse(spelled) == {
        "class": "Tool",
        "name": "sun",
        "function": None,
        "on": True,
    }
