"""What holds for every dialect: no value of an attribute breaks the rows."""

import json
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.examples import examples
from support.spans import chat, only_call, span, text_message

from otel_lightning.collector.derive.assemble import derive
from otel_lightning.collector.derive.dialects import read

CUT = ["[{", '"\\ud800"', "{'a': 1", "NaN"]
PLAIN_QUESTION = {"role": "user", "content": "Is it sunny in Rome?"}


def words(text: str) -> list[str]:
    return text.split()


WORDS = words("""
    type role content parts text id name arguments function tool_calls tool_call_id choices
    message messages model input output usage prompt_tokens logprobs token_ids
    response_metadata generations kwargs data lc finish_reason summary image_url toolUse
    toolResult toolUseId additional_kwargs finishReason
""")


VALUES = words("x user assistant tool tool_calls function_call text tool_call tool_result")
EVIDENCE = [
    {"gen_ai.operation.name": "chat"},
    {"gen_ai.operation.name": "execute_tool"},
    {"openinference.span.kind": "LLM"},
    {"openinference.span.kind": "TOOL"},
    {"mlflow.spanType": '"CHAT_MODEL"'},
    {"langfuse.observation.type": "generation"},
    {"langsmith.span.kind": "llm"},
    {"ai.operationId": "ai.generateText.doGenerate"},
    {"litellm.call_id": "1"},
    {"llm.request.type": "chat"},
    {"agentops.span.kind": "tool"},
    {"gen_ai.agent.description": "OpenAI Agents instrumentation", "gen_ai.operation.name": "chat"},
]


KEYS = words("""
    gen_ai.operation.name gen_ai.input.messages gen_ai.output.messages gen_ai.response.id
    gen_ai.system_instructions gen_ai.tool.definitions gen_ai.response.finish_reasons
    gen_ai.usage.input_tokens gen_ai.request.model gen_ai.prompt.0.role
    gen_ai.prompt.0.content gen_ai.completion.0.tool_calls.0.id gen_ai.tool.name
    gen_ai.tool.call.arguments gen_ai.tool.call.result openinference.span.kind input.value
    output.value llm.model_name llm.invocation_parameters llm.input_messages.0.message.role
    llm.tools.0.tool.json_schema mlflow.spanType mlflow.spanInputs mlflow.spanOutputs
    mlflow.llm.model mlflow.chat.tokenUsage langfuse.observation.type
    langfuse.observation.input langfuse.observation.output langsmith.span.kind gen_ai.prompt
    gen_ai.completion ai.operationId ai.prompt.messages ai.response.toolCalls
    litellm.call_id metadata.usage_object agentops.span.kind llm.request.type
    lightning.prompt_token_ids prompt_token_ids traceloop.entity.input traceloop.span.kind
    gen_ai.request.messages gen_ai.request.available_tools gen_ai.response.text
    gen_ai.response.tool_calls
""")


def test_a_span_without_genai_evidence_is_only_structure() -> None:
    assert read(span({"http.request.method": "POST"})) is None


def test_a_span_that_breaks_its_reader_is_recorded_and_loses_no_other_row() -> None:
    odd = span({"openinference.span.kind": "LLM", "llm.tools.0": "not a tool"}, id="odd")
    sound = span(chat([text_message("user", "Hi")], text_message("assistant", "Hello")), id="sound")
    derived = derive([odd, sound], [])
    assert [call.span_id for call in derived.llm_calls] == ["sound"]
    assert list(derived.unread) == [("t1", "odd")]
    assert "AttributeError" in derived.unread["t1", "odd"]


ODD = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.sampled_from(VALUES),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(WORDS), inner, max_size=5)
    ),
    max_leaves=12,
)


MESSAGES = st.lists(
    st.fixed_dictionaries(
        {"role": st.sampled_from(["user", "assistant", "tool"])},
        optional=dict.fromkeys(WORDS[2:12], ODD),
    ),
    max_size=4,
)


@examples(150)
@given(
    st.sampled_from(EVIDENCE),
    st.dictionaries(st.sampled_from(KEYS), ODD | MESSAGES | st.sampled_from(CUT), max_size=9),
)
def test_rows_of_any_attributes_can_be_stored(
    evidence: dict[str, str], more: dict[str, Any]
) -> None:
    attributes = {**more, **evidence}
    derived = derive([span(attributes), span(attributes, id="s2", parent="s1", at=2)], [])
    for call in derived.llm_calls:
        for messages in (call.input_messages, call.output_messages, call.tool_definitions):
            json.dumps(messages, ensure_ascii=False).encode()
        pa.array([call.prompt_token_ids, call.completion_token_ids], pa.list_(pa.int32()))
        pa.array([call.input_tokens, call.output_tokens, call.reasoning_tokens], pa.int64())
        pa.array([call.response_id, call.request_model, call.response_model], pa.string())
    for tool in derived.tool_calls:
        pa.array([tool.name, tool.tool_call_id, tool.error_type], pa.string())
        json.dumps([tool.arguments, tool.result], ensure_ascii=False).encode()


@pytest.mark.parametrize(
    "attributes",
    [
        {
            "langfuse.observation.type": "generation",
            "langfuse.observation.input": [PLAIN_QUESTION],
            "langfuse.observation.model.parameters": [1],
        },
        {
            "mastra.span.type": "model_step",
            "mastra.model_step.input": [PLAIN_QUESTION],
            "mastra.metadata.modelMetadata": [1],
        },
    ],
    ids=["langfuse", "mastra"],
)
def test_a_list_where_a_reader_expects_an_object_loses_no_call(
    attributes: dict[str, object],
) -> None:
    texts = {k: v if isinstance(v, str) else json.dumps(v) for k, v in attributes.items()}
    (message,) = only_call(span(texts)).input_messages or []
    assert message["role"] == "user"
