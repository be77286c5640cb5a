"""Messages in the flattened layout, and those that a package spells as Python's text."""

import json
from typing import Any

import pytest
from support.captures import load
from support.dialects_page import DATA
from support.spans import answered, asked, chat, said, span

from otel_lightning.collector.derive.assemble import derive
from otel_lightning.collector.derive.rows import LlmCall

QUESTION = {"role": "user", "content": "Is it sunny in Rome?"}


def only_call(attributes: dict[str, object]) -> LlmCall:
    (call,) = derive([span(attributes)], []).llm_calls
    return call


CALL = "id='c1', function=F(name='sun', arguments='{}')"
SPELLED = (
    f"role='assistant' content='So.' tool_calls=[Call({CALL}, type='function')] prefix=False",
    f"Message(content='So.', role='assistant', tool_calls=[Call({CALL})])",
)


@pytest.mark.parametrize("spelled", SPELLED)
def test_messages_that_a_package_wrote_as_pydantics_text_are_read(spelled: str) -> None:
    """OpenInference for Mistral writes so what an agent sends back as it got it."""
    request = {"model": "m", "messages": [QUESTION, spelled]}
    call = only_call(
        {"openinference.span.kind": "LLM", "llm.model_name": "m", "input.value": request}
    )
    asks = asked("c1", "sun", {})["parts"][0] | {"arguments_raw": "{}"}
    parts = [*said("assistant", "So.")["parts"], asks]
    assert (call.input_messages or [])[1:] == [{"role": "assistant", "parts": parts}]


def test_a_text_that_speaks_of_a_role_is_the_users() -> None:
    text = "role='assistant' is what I want"
    call = only_call(chat([text], said("assistant", "Yes.")))  # type: ignore[list-item]
    assert call.input_messages == [said("user", text)]


def test_parameters_that_were_not_given_are_none() -> None:
    request = {"model": "m", "messages": [QUESTION], "temperature": "", "top_p": 0}
    call = only_call(
        {"openinference.span.kind": "LLM", "llm.model_name": "m", "input.value": request}
    )
    assert call.request_params == {"top_p": 0}


def flat(**keys: Any) -> dict[str, object]:
    """Return the attributes of a call in the flattened layout."""
    found: dict[str, object] = {"llm.request.type": "chat", "gen_ai.prompt.0.role": "user"}
    return found | {key.replace("__", "."): value for key, value in keys.items()}


def test_bedrocks_blocks_without_types_are_read_from_flattened_messages() -> None:
    uses = [{"text": "So."}, {"toolUse": {"toolUseId": "c1", "name": "sun", "input": {}}}]
    results = [{"toolResult": {"toolUseId": "c1", "content": [{"text": "It shines."}]}}]
    call = only_call(
        flat(
            gen_ai__prompt__0__content=json.dumps([{"text": "Sun?"}]),
            gen_ai__prompt__1__role="assistant",
            gen_ai__prompt__1__content=json.dumps(uses),
            gen_ai__prompt__2__role="user",
            gen_ai__prompt__2__content=json.dumps(results),
        )
    )
    parts = [*said("assistant", "So.")["parts"], *asked("c1", "sun", {})["parts"]]
    assert call.input_messages == [
        said("user", "Sun?"),
        {"role": "assistant", "parts": parts},
        answered("c1", "It shines."),
    ]


def test_a_users_list_of_other_objects_stays_text() -> None:
    text = '[{"city": "Rome"}]'
    call = only_call(flat(gen_ai__prompt__0__content=text))
    assert call.input_messages == [said("user", text)]


def test_reasoning_in_blocks_and_coheres_documents_are_read_as_texts() -> None:
    thought = [{"text": "Three.", "type": "summary_text"}]
    document = [{"type": "document", "document": {"data": "It shines."}}]
    call = only_call(
        flat(
            gen_ai__prompt__0__role="tool",
            gen_ai__prompt__0__content=json.dumps(document),
            gen_ai__completion__0__content="So.",
            gen_ai__completion__0__reasoning=json.dumps(thought),
            llm__usage__reasoning_tokens=5,
        )
    )
    assert (call.input_messages or [])[0]["parts"][0]["response"] == "It shines."
    (output,) = call.output_messages or ()
    assert output["parts"][0] == {"type": "reasoning", "content": "Three."}
    assert call.reasoning_tokens == 5


def test_a_reranking_in_the_flattened_layout_is_no_model_call() -> None:
    capture = load(DATA / "traceloop_cohere/modes.truth.json")
    (found,) = derive(capture.spans, capture.logs).retrievals
    assert (found.kind, found.query) == ("reranker", "sunny city")
    assert found.documents == [
        {"content": "Rome is sunny.", "score": 0.9},
        {"content": "Oslo is cold.", "score": 0.7},
    ]


def test_traceloops_tasks_are_no_tools_if_a_processor_calls_them_so() -> None:
    task = {"traceloop.span.kind": "task", "openinference.span.kind": "TOOL", "input.value": "x"}
    assert not derive([span(task, name="plan.task")], []).tool_calls


def test_tool_calls_that_dspy_spells_beside_a_text_are_read() -> None:
    """DSPy's OpenInference writes each tool call of an answer as Python's text."""
    answer = [{"text": "So.", "tool_calls": [f"ChatCompletionMessageToolCall({CALL})"]}]
    keys = {"openinference.span.kind": "LLM", "llm.model_name": "m", "output.value": answer}
    (output,) = only_call(keys).output_messages or ()
    asks = asked("c1", "sun", {})["parts"][0] | {"arguments_raw": "{}"}
    assert output["parts"] == [*said("assistant", "So.")["parts"], asks]


ASKS = "{'type': 'function_call', 'call_id': 'c1', 'name': 'sun', 'arguments': '{}'}"
REFUSAL = [{"type": "text", "content": "No."}]


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
    told = [{"role": "assistant", "parts": [{"type": "text", "content": text}]}]
    keys = {
        "gen_ai.operation.name": "chat",
        "gen_ai.agent.description": "OpenAI Agents instrumentation",
        "gen_ai.output.messages": told,
    }
    (output,) = only_call(keys).output_messages or ()
    asks = asked("c1", "sun", {})["parts"][0] | {"arguments_raw": "{}"}
    assert output["parts"] == (parts or [asks])


def test_the_id_that_google_adk_does_not_know_is_none() -> None:
    keys = {"gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": "sun"}
    (tool,) = derive([span(keys | {"gen_ai.tool.call.id": "<not specified>"})], []).tool_calls
    assert tool.tool_call_id is None


def test_the_response_that_an_answer_of_smolagents_spells_is_read() -> None:
    raw = (
        "ChatCompletion(id='r1', choices=[Choice(finish_reason='tool_calls', index=0, message="
        f"Message(content=None, role='assistant', tool_calls=[Call({CALL})]))], model='m-1')"
    )
    keys = {"openinference.span.kind": "LLM", "llm.model_name": "m", "llm.token_count.total": 3}
    call = only_call(keys | {"output.value": {"role": "assistant", "content": None, "raw": raw}})
    assert (call.response_id, call.response_model) == ("r1", "m-1")
    asks = asked("c1", "sun", {})["parts"][0] | {"arguments_raw": "{}"}
    assert call.output_messages == [
        {"role": "assistant", "parts": [asks], "finish_reason": "tool_calls"}
    ]
