"""Claude Code's dialect."""

from support.captures import load
from support.dialects_page import DATA
from support.spans import span

from otel_lightning.collector.derive.assemble import derive
from otel_lightning.collector.derive.rows import Event

REQUEST = {"span.type": "llm_request", "gen_ai.request.model": "m", "gen_ai.system": "anthropic"}


def test_each_session_is_a_rollout_with_its_requests_and_executions() -> None:
    capture = load(DATA / "claude_code" / "tasks.truth.json")
    derived = derive(capture.spans, capture.logs)
    steps = [(call.rollout_id, call.step) for call in derived.llm_calls]
    first, second = {rollout: None for rollout, _ in steps}
    assert sorted(steps) == sorted([*((first, n) for n in range(4)), (second, 0), (second, 1)])
    ran = [(tool.name, tool.result, tool.error_type) for tool in derived.tool_calls]
    assert sorted(ran, key=str) == [
        ("rain", "It rains in Ostia until noon.", None),
        ("rain", "It rains in Rome until noon.", None),
        ("rain", None, "tool_error"),
    ]


def test_tokens_from_the_cache_count_as_input() -> None:
    counts = {"input_tokens": 3, "output_tokens": 9, "cache_read_tokens": 20}
    given = span(
        {**REQUEST, **counts, "cache_creation_tokens": 8, "stop_reason": "end_turn"},
        name="claude_code.llm_request",
    )
    (call,) = derive([given], []).llm_calls
    assert (call.input_tokens, call.output_tokens, call.cached_input_tokens) == (31, 9, 20)


def test_a_request_that_failed_has_its_status_as_the_error_type() -> None:
    failed = {**REQUEST, "success": False, "status_code": 400, "error": "no weather in Nowhere"}
    given = span(failed, name="claude_code.llm_request", status="ERROR", message="no weather")
    (call,) = derive([given], []).llm_calls
    assert (call.error_type, call.finish_reason) == ("400", "error")


def test_detailed_tracing_has_answers_tool_names_and_arguments() -> None:
    tools = [{"name": "sun", "hash": "1"}]
    asked = span(
        {**REQUEST, "tools": tools, "response.model_output": "It shines."},
        id="call",
        name="claude_code.llm_request",
    )
    ran = span(
        {
            "span.type": "tool",
            "gen_ai.operation.name": "execute_tool",
            "gen_ai.tool.name": "sun",
            "tool_input": '[TOOL INPUT: sun]\n{"city":"Rome"}',
        },
        id="tool",
        name="claude_code.tool",
        events=(Event("tool.output", 0, {"output": "It shines."}),),
    )
    derived = derive([asked, ran], [])
    (call,), (tool,) = derived.llm_calls, derived.tool_calls
    assert [one["name"] for one in call.tool_definitions or []] == ["sun"]
    assert (call.output_messages or [])[0]["parts"][0]["content"] == "It shines."
    assert call.content == "truncated"
    assert (tool.arguments, tool.result) == ({"city": "Rome"}, "It shines.")
