"""Model calls of the GenAI conventions: operation, model, usage and errors."""

import pytest
from support.spans import ANSWER, QUESTION, chat, only_call, read_call, span, text_message

from otel_lightning.collector.derive.assemble import derive
from otel_lightning.collector.derive.dialects import read
from otel_lightning.collector.derive.rows import AgentRun, Event, LlmCall

BARE = {"gen_ai.operation.name": "chat"}
OPENLIT, ADK = "openlit.instrumentation.anthropic", "gcp.vertex.agent"
PLAIN_QUESTION = {"role": "user", "content": "Is it sunny in Rome?"}
REQUEST = {"gen_ai.request.model": "m", "gen_ai.input.messages": [PLAIN_QUESTION]}
LABELLED = {"openinference.span.kind": "LLM", "gen_ai.operation.name": "chat"}


def test_a_span_of_the_conventions_is_read_whole() -> None:
    more = {
        "gen_ai.provider.name": "openai",
        "gen_ai.request.model": "gpt-x",
        "gen_ai.response.model": "gpt-x-2026",
        "gen_ai.response.id": "resp-1",
        "gen_ai.request.temperature": 0.3,
        "gen_ai.response.finish_reasons": ["stop"],
        "gen_ai.usage.input_tokens": 11,
        "gen_ai.usage.output_tokens": 3,
        "gen_ai.usage.cache_read.input_tokens": 4,
        "gen_ai.conversation.id": "talk-1",
    }
    call = read_call(
        span(chat([text_message("user", "Hi")], text_message("assistant", "Hello"), more))
    )
    assert (call.request_model, call.response_model) == ("gpt-x", "gpt-x-2026")
    assert (call.input_tokens, call.output_tokens, call.cached_input_tokens) == (11, 3, 4)
    assert (call.response_id, call.conversation_id) == ("resp-1", "talk-1")
    assert call.request_params == {"temperature": 0.3}
    assert call.input_messages == [text_message("user", "Hi")]
    assert (call.finish_reason, call.content) == ("stop", "full")
    assert call.reasoning_tokens is None


def test_our_own_token_attributes_are_read_on_any_model_call() -> None:
    own = {
        "lightning.prompt_token_ids": [1, 2],
        "lightning.completion_token_ids": [3],
        "lightning.completion_logprobs": [-0.5],
    }
    for dialect in (chat([], text_message("assistant", "x")), {"openinference.span.kind": "LLM"}):
        call = read_call(span({**dialect, **own}))
        assert call.prompt_token_ids == [1, 2]
        assert call.completion_token_ids == [3]
        assert call.completion_logprobs == [-0.5]


def test_an_unknown_operation_with_a_response_id_is_a_call() -> None:
    given = {"gen_ai.operation.name": "converse", "gen_ai.response.id": "r1"}
    assert read_call(span(given)).operation == "converse"


@pytest.mark.parametrize("operation", ["chain", "execute_task", "create_agent", "unknown"])
def test_operations_that_repeat_the_calls_below_are_no_calls(operation: str) -> None:
    given = chat([text_message("user", "Hi")], text_message("assistant", "Hello"))
    assert read(span({**given, "gen_ai.operation.name": operation})) is None


def test_a_recorded_exception_without_error_status_is_no_error() -> None:
    cancelled = Event("exception", 0, {"exception.type": "CancelledError"})
    call = read_call(span({"gen_ai.operation.name": "chat"}, events=(cancelled,)))
    assert call.error_type is None


def test_an_error_has_its_type_and_message() -> None:
    failure = Event("exception", 0, {"exception.type": "Timeout", "exception.message": "late"})
    given = span({"gen_ai.operation.name": "chat"}, status="ERROR", events=(failure,))
    call = read_call(given)
    assert (call.error_type, call.error_message) == ("Timeout", "late")
    assert call.finish_reason == "error"


def test_an_agent_span_is_a_run_and_its_summed_usage_no_call() -> None:
    given = {
        **chat([text_message("user", "Hi")], text_message("assistant", "Hello")),
        "gen_ai.operation.name": "invoke_agent",
        "gen_ai.agent.name": "planner",
        "gen_ai.usage.input_tokens": 99,
    }
    run = read(span(given))
    assert isinstance(run, AgentRun)
    assert (run.kind, run.name) == ("agent", "planner")


@pytest.mark.parametrize("prefix", ["traceloop.association.properties", "langsmith.metadata"])
def test_the_node_of_a_graph_is_the_agent_only_if_no_agent_is_named(prefix: str) -> None:
    node = {"gen_ai.operation.name": "chat", f"{prefix}.langgraph_node": "plan"}
    unnamed = {**node, f"{prefix}.langgraph_node": "model"}
    inside = {**unnamed, f"{prefix}.langgraph_checkpoint_ns": "sell:1|model:2"}
    named = {**node, f"{prefix}.lc_agent_name": "writer"}
    given = (node, unnamed, inside, named, {**named, "gen_ai.agent.name": "boss"})
    calls = [read(span(one)) for one in given]
    assert [call.agent_name for call in calls if isinstance(call, LlmCall)] == [
        "plan",
        None,
        "sell",
        "writer",
        "boss",
    ]


def test_geminis_stop_without_content_is_no_finish_reason() -> None:
    metadata = {
        "gen_ai.operation.name": "generate_content",
        "gen_ai.response.finish_reasons": ["stop"],
    }
    assert only_call(span(metadata)).finish_reason is None


def test_a_providers_own_usage_fills_what_the_conventions_keys_leave_out() -> None:
    raw = {
        "prompt_tokens": 9,
        "completion_tokens": 2,
        "prompt_tokens_details": {"cached_tokens": 4},
    }
    call = only_call(span({**BARE, "gen_ai.usage.input_tokens": 9, "gen_ai.usage.raw": raw}))
    assert (call.input_tokens, call.output_tokens, call.cached_input_tokens) == (9, 2, 4)


def test_a_model_is_the_requested_one_unless_the_answer_names_its_own() -> None:
    kind = {"openinference.span.kind": "LLM", "llm.model_name": "m"}
    echoed = only_call(span({**kind, "llm.invocation_parameters": {"model": "m"}}))
    assert (echoed.request_model, echoed.response_model) == ("m", None)
    swapped = {"gen_ai.request.model": "m-1", "gen_ai.response.model": "m-1", "model": '"m"'}
    call = only_call(span({**BARE, **swapped}))
    assert (call.request_model, call.response_model) == ("m", "m-1")


def test_usage_of_zero_tokens_is_unknown() -> None:
    zeros = {"gen_ai.usage.input_tokens": 0, "gen_ai.usage.output_tokens": 0}
    call = only_call(span(chat([QUESTION], ANSWER, zeros)))
    assert (call.input_tokens, call.output_tokens) == (None, None)


def test_the_model_asked_for_beside_the_one_that_answered_is_the_request_model() -> None:
    told = {**BARE, "gen_ai.request.model": "m-2026", "param.model": "m", "input": "Hi"}
    call = only_call(span(told))
    assert (call.request_model, call.response_model) == ("m", "m-2026")


@pytest.mark.parametrize(
    ("written", "operation"),
    [
        ("Chat", "chat"),
        ("TextCompletion", "text_completion"),
        ("GenerateContent", "generate_content"),
    ],
)
def test_an_operation_is_known_in_any_case_without_content(written: str, operation: str) -> None:
    """Microsoft's Agent 365 writes them so."""
    call = only_call(span({"gen_ai.operation.name": written, "gen_ai.request.model": "m"}))
    assert (call.operation, call.request_model) == (operation, "m")


def test_a_span_without_an_operation_is_read_by_its_kind() -> None:
    """Alibaba's agents for Java, Go and Python write `gen_ai.span.kind`."""
    call = {"gen_ai.span.kind": "LLM", "gen_ai.usage.prompt_tokens": 31, "input.value": "Hi"}
    ran = {
        "gen_ai.span.kind": "TOOL",
        "tool.name": "sun",
        "input.value": '{"city": "Rome"}',
        "output.value": "It shines.",
    }
    entry = {"gen_ai.span.kind": "ENTRY", "input.value": "Hi"}
    derived = derive([span(entry, id="e"), span(call, id="c"), span(ran, id="t", at=1)], [])
    assert [(one.span_id, one.input_tokens) for one in derived.llm_calls] == [("c", 31)]
    (tool,) = derived.tool_calls
    assert (tool.name, tool.arguments, tool.result) == ("sun", {"city": "Rome"}, "It shines.")


def test_the_conventions_own_name_of_the_previous_response_is_read() -> None:
    named = {**BARE, "gen_ai.response.id": "r2", "gen_ai.request.previous_response.id": "r1"}
    assert only_call(span(named)).request_params == {"previous_response_id": "r1"}


@pytest.mark.parametrize("operation", ["plan", "search_memory", "upsert_memory"])
def test_planning_and_memory_are_no_model_calls(operation: str) -> None:
    given = {"gen_ai.operation.name": operation, "gen_ai.output.messages": [ANSWER]}
    assert derive([span(given)], []).llm_calls == []


def test_the_name_of_a_span_that_lost_its_first_attributes_has_the_requested_model() -> None:
    """A composite sampler drops what a span starts with, so only what came later is left."""
    later = {"gen_ai.response.id": "r", "gen_ai.response.model": "m-1"}
    assert only_call(span(later, name="chat m")).request_model == "m"
    assert only_call(span({**later, **BARE}, name="chat m")).request_model is None
    assert only_call(span(later, name="chat with m")).request_model is None


def test_the_cached_tokens_that_openlit_leaves_out_of_anthropics_input_are_added() -> None:
    counts = {
        "gen_ai.operation.name": "chat",
        "gen_ai.response.id": "r",
        "gen_ai.usage.input_tokens": 10,
        "gen_ai.usage.cache_read.input_tokens": 7,
    }
    assert only_call(span(counts, scope=OPENLIT)).input_tokens == 17
    assert only_call(span(counts, scope="openlit.instrumentation.openai")).input_tokens == 10


def test_the_reasoning_that_openlit_leaves_out_of_geminis_output_is_added() -> None:
    counts = {
        "gen_ai.operation.name": "chat",
        "gen_ai.provider.name": "gemini",
        "gen_ai.response.id": "r",
        "gen_ai.usage.output_tokens": 10,
        "gen_ai.usage.reasoning_tokens": 7,
    }
    call = only_call(span(counts, scope="openlit.instrumentation.google_ai_studio"))
    assert call.output_tokens == 17
    assert only_call(span(counts, scope="other")).output_tokens == 10


def test_counts_that_openlit_estimates_for_a_stream_are_unknown() -> None:
    estimated = {
        "gen_ai.operation.name": "chat",
        "gen_ai.response.id": "r",
        "gen_ai.request.stream": True,
        "gen_ai.usage.input_tokens": 10,
        "gen_ai.usage.output_tokens": 0,
    }
    of_openai = {"scope": "openlit.instrumentation.openai"}
    call = only_call(span(estimated, **of_openai))
    assert (call.input_tokens, call.output_tokens) == (None, None)
    sent = {**estimated, "gen_ai.usage.cache_read.input_tokens": 0}
    whole = {**estimated, "gen_ai.request.stream": False}
    older = {**estimated, "gen_ai.usage.reasoning_tokens": 4}  # 1.36
    for known in (sent, whole, older):
        assert only_call(span(known, **of_openai)).input_tokens == 10
    assert only_call(span(estimated, scope="other")).input_tokens == 10


def test_a_failed_call_has_its_input_and_its_error() -> None:
    call = only_call(span({**REQUEST, "error.type": "BadRequestError"}, status="ERROR"))
    assert (call.error_type, call.finish_reason) == ("BadRequestError", "error")
    assert call.input_messages == [
        {"role": "user", "parts": [{"type": "text", "content": "Is it sunny in Rome?"}]}
    ]


def test_a_span_with_a_model_and_no_input_is_no_call() -> None:
    assert not derive([span({"gen_ai.request.model": "m"})], []).llm_calls


def test_the_stop_reason_of_anthropics_own_messages_is_the_finish_reason() -> None:
    use = {"type": "tool_use", "id": "c1", "name": "sun", "input": {"city": "Rome"}}
    message = {"role": "assistant", "content": [use], "stop_reason": "tool_use"}
    assert (
        only_call(span({**REQUEST, "gen_ai.output.messages": [message]})).finish_reason
        == "tool_calls"
    )


def test_a_span_that_fails_after_the_answer_keeps_the_finish_reason() -> None:
    (call,) = derive(
        [
            span(
                {
                    **chat([PLAIN_QUESTION], text_message("assistant", "Yes.")),
                    "gen_ai.response.finish_reasons": ["stop"],
                },
                status="ERROR",
            )
        ],
        [],
    ).llm_calls
    assert call.finish_reason == "stop"


def test_a_finish_reason_that_is_a_plain_word_is_read() -> None:
    assert (
        only_call(span({**REQUEST, "gen_ai.response.finish_reasons": "length"})).finish_reason
        == "length"
    )


@pytest.mark.parametrize("key", ["gen_ai.response.finish_reasons", "ai.response.finishReason"])
def test_the_error_of_a_tool_that_a_processor_copied_to_a_call_is_no_error_of_the_call(
    key: str,
) -> None:
    """OpenInference's processor for Vercel's AI SDK writes it there."""
    ended = {"gen_ai.request.model": "m", key: ["stop"]}
    if key.startswith("ai."):
        ended |= {"ai.operationId": "ai.generateText.doGenerate"}
    call = only_call(span(LABELLED | ended, status="ERROR", message="no such city"))
    assert (call.error_type, call.error_message) == (None, None)
    own = span(LABELLED | ended, status="ERROR", events=(Event("exception", 0, {}),))
    (failed,) = derive([own], []).llm_calls
    assert failed.error_type == "_OTHER"
    assert only_call(span(LABELLED | {"gen_ai.request.model": "m"}, status="ERROR")).error_type


def test_a_span_that_openinferences_processor_only_labelled_is_the_conventions() -> None:
    labels = {"openinference.span.kind": "EMBEDDING", "embedding.model_name": "m"}
    attributes = {"gen_ai.request.model": "m", "gen_ai.usage.input_tokens": 8}
    call = only_call(span({"gen_ai.operation.name": "embeddings", **labels, **attributes}))
    assert (call.dialect, call.operation) == ("semconv", "embeddings")
    assert (call.request_model, call.response_model, call.input_tokens) == ("m", None, 8)


def gemini(tokens: int, total: int) -> dict[str, object]:
    return {
        "gen_ai.operation.name": "generate_content",
        "gen_ai.usage.input_tokens": 31,
        "gen_ai.usage.output_tokens": tokens,
        "gen_ai.usage.total_tokens": total,
    }


@pytest.mark.parametrize(("tokens", "total"), [(5, 40), (9, 40), (9, 9)])
def test_the_total_counts_geminis_thoughts_as_output(tokens: int, total: int) -> None:
    assert only_call(span(gemini(tokens, total))).output_tokens == 9


def test_the_total_counts_bedrocks_cached_tokens_as_input() -> None:
    cached = {"gen_ai.operation.name": "chat", "gen_ai.usage.cache_read.input_tokens": 16}
    call = only_call(span({**gemini(9, 56), **cached}))
    assert (call.input_tokens, call.output_tokens) == (47, 9)


@pytest.mark.parametrize(("total", "counted"), [(None, 47), (40, 47), (56, 47)])
def test_bedrocks_cached_tokens_are_input_whatever_the_total_is(
    total: int | None, counted: int
) -> None:
    """Traceloop writes a total of its own, which lacks the cached tokens."""
    cached = {"gen_ai.operation.name": "chat", "gen_ai.usage.cache_read.input_tokens": 16}
    given = {key: value for key, value in gemini(9, total or 0).items() if value != 0}
    scope = "opentelemetry.instrumentation.bedrock"
    assert only_call(span({**given, **cached}, scope=scope)).input_tokens == counted


def test_an_input_that_openlit_joined_to_one_text_is_truncated() -> None:
    given = {
        "gen_ai.operation.name": "chat",
        "gen_ai.prompt": "user: Is it sunny?\nassistant: \ntool: It shines.",
        "gen_ai.completion": "Yes.",
    }
    call = only_call(span(given, scope="openlit.otel.tracing"))
    assert (call.input_messages, call.content) == (None, "truncated")
    assert call.output_messages == [text_message("assistant", "Yes.")]


def test_the_tokens_that_strands_wrote_to_bedrocks_cache_are_counted() -> None:
    """Bedrock leaves cached tokens out of the input tokens; only its total has them."""
    counted = {
        "gen_ai.provider.name": "strands-agents",
        "gen_ai.usage.input_tokens": 10,
        "gen_ai.usage.output_tokens": 5,
        "gen_ai.usage.total_tokens": 115,
        "gen_ai.usage.cache_read_input_tokens": 60,
        "gen_ai.usage.cache_write_input_tokens": 40,
    }
    call = read_call(span(chat([QUESTION], ANSWER, counted)))
    assert (call.input_tokens, call.output_tokens) == (110, 5)
    assert (call.cached_input_tokens, call.cache_creation_input_tokens) == (60, 40)


@pytest.mark.parametrize(
    ("reason", "tokens", "expected"),
    [
        ("other", {}, (None, "truncated")),
        ("other", {"o": 3}, (None, "full")),
        ("stop", {}, ("stop", "full")),
    ],
)
def test_the_ai_sdks_reason_other_is_unknown_and_not_the_stop_of_its_message(
    reason: str, tokens: dict[str, int], expected: tuple[str | None, str]
) -> None:
    """A stream of the Responses API that broke off has this reason, and no counts."""
    stated = {"gen_ai.request.model": "m", "gen_ai.response.finish_reasons": [reason]}
    counts = {"gen_ai.usage.output_tokens": tokens["o"]} if tokens else {}
    said = {**text_message("assistant", "It is"), "finish_reason": "stop"}
    call = read_call(span({**chat([QUESTION], said), **stated, **counts}))
    assert (call.finish_reason, call.content) == expected
