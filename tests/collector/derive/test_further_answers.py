"""Answers of models in forms that recordings of further packages have shown."""

import pytest
from support.spans import answered, chat, said, span

from otel_lightning.collector.derive.assemble import derive
from otel_lightning.collector.derive.rows import LlmCall, Span

KIND = {"openinference.span.kind": "LLM"}


def only_call(attributes: dict[str, object]) -> LlmCall:
    (call,) = derive([span(attributes)], []).llm_calls
    return call


def test_the_text_of_a_completion_model_is_the_answer() -> None:
    choice = {"index": 0, "text": "It is sunny.", "finish_reason": "stop"}
    response = {"id": "cmpl-1", "object": "text_completion", "choices": [choice]}
    request = {"model": "i", "prompt": "Tell of Rome."}
    call = only_call({**KIND, "input.value": request, "output.value": response})
    assert call.output_messages == [{**said("assistant", "It is sunny."), "finish_reason": "stop"}]


def test_a_prompt_that_gemini_refused_is_a_call_without_an_answer() -> None:
    response = {
        "prompt_feedback": {"block_reason": "SAFETY"},
        "model_version": "gemini-002",
        "response_id": "r1",
        "usage_metadata": {"prompt_token_count": 31, "total_token_count": 31},
    }
    call = only_call({**KIND, "llm.model_name": "gemini", "output.value": response})
    assert (call.response_id, call.response_model) == ("r1", "gemini-002")
    assert (call.finish_reason, call.output_messages) == ("content_filter", None)


def test_code_that_gemini_ran_is_an_execution_of_its_own_tool() -> None:
    parts = [
        {"executable_code": {"code": "print(1)", "language": "PYTHON"}},
        {"code_execution_result": {"outcome": "OUTCOME_FAILED", "output": "no"}},
        {"text": "So."},
    ]
    response = {"candidates": [{"content": {"role": "model", "parts": parts}}]}
    request = {"model": "g", "contents": "Hi", "tools": [{"code_execution": {}}]}
    given = {**KIND, "input.value": request, "output.value": response}
    derived = derive([span(given)], [])
    (tool,) = derived.tool_calls
    assert (tool.name, tool.result, tool.error_type) == ("code_execution", "no", "_OTHER")
    assert tool.arguments == {"code": "print(1)", "language": "PYTHON"}
    offered = derived.llm_calls[0].tool_definitions or []
    assert [tool["name"] for tool in offered] == ["code_execution"]


def gemini(tokens: int, total: int) -> dict[str, object]:
    return {
        "gen_ai.operation.name": "generate_content",
        "gen_ai.usage.input_tokens": 31,
        "gen_ai.usage.output_tokens": tokens,
        "gen_ai.usage.total_tokens": total,
    }


@pytest.mark.parametrize(("tokens", "total"), [(5, 40), (9, 40), (9, 9)])
def test_the_total_counts_geminis_thoughts_as_output(tokens: int, total: int) -> None:
    assert only_call(gemini(tokens, total)).output_tokens == 9


def test_the_total_counts_bedrocks_cached_tokens_as_input() -> None:
    cached = {"gen_ai.operation.name": "chat", "gen_ai.usage.cache_read.input_tokens": 16}
    call = only_call({**gemini(9, 56), **cached})
    assert (call.input_tokens, call.output_tokens) == (47, 9)


def test_responses_whose_id_the_openai_agents_sdk_made_up_are_several_calls() -> None:
    """Logfire records them, for a chat model that streams, with the provider's id inside."""

    def streamed(number: int) -> Span:
        item: dict[str, object] = {"type": "message", "role": "assistant", "content": "Yes."}
        item["provider_data"] = {"response_id": f"chatcmpl-{number}"}
        response = {"id": "__fake_id__", "object": "response", "model": "m", "output": [item]}
        sent = [{"role": "user", "content": f"Question {number}?"}]
        keys = {"gen_ai.system": "openai", "gen_ai.request.model": "m"}
        told = {**keys, "input": sent, "output": [response]}
        return span(told, id=f"s{number}", parent="agent", at=number)

    calls = derive([streamed(1), streamed(2)], []).llm_calls
    assert [call.response_id for call in calls] == ["chatcmpl-1", "chatcmpl-2"]


def test_text_blocks_that_python_spelled_are_texts() -> None:
    """OpenLIT writes so what an agent gave as a list of blocks."""
    spelled = "[{'type': 'text', 'text': 'Be brief.', 'cache_control': {'type': 'ephemeral'}}]"
    history = [said("system", spelled), said("user", "Sun?"), answered("c1", spelled)]
    call = only_call(chat(history, said("assistant", "Yes.")))
    assert call.input_messages == [
        said("system", "Be brief."),
        said("user", "Sun?"),
        answered("c1", "Be brief."),
    ]
