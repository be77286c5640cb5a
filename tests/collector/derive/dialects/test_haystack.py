"""Haystack's dialect."""

from support.spans import assert_read, only_call, span

from otel_lightning.collector.derive.assemble import derive


def test_a_haystack_generator_is_a_call_even_if_its_content_is_not_traced() -> None:
    kind = {"haystack.component.type": "OpenAIGenerator"}
    reply = {"replies": ["Hello"], "meta": [{"model": "m-1", "finish_reason": "stop"}]}
    traced = {"haystack.component.input": {"prompt": "Hi"}, "haystack.component.output": reply}
    call = only_call(span({**kind, **traced}))
    assert_read(call)
    assert (call.response_model, call.finish_reason) == ("m-1", "stop")
    assert only_call(span(kind)).content == "absent"
    assert not derive([span({"haystack.component.type": "ToolInvoker"})], []).llm_calls


def test_a_step_of_a_haystack_agent_is_a_call_even_if_its_content_is_not_traced() -> None:
    kind = {"haystack.component.type": "OpenAIChatGenerator"}
    step = span({}, name="haystack.agent.step.llm")
    inner = span(kind, name="haystack.chat_generator.run", id="s2", parent="s1")
    assert only_call(step).content == "absent"
    assert len(derive([step, inner], []).llm_calls) == 1


def test_each_generator_that_a_haystack_fallback_tried_is_one_call() -> None:
    asked = {"haystack.component.input": {"messages": ["Hi"]}}
    tried = asked | {"haystack.component.type": "OpenAIChatGenerator"}
    fallback = asked | {"haystack.component.type": "FallbackChatGenerator"}
    answered = fallback | {"haystack.component.output": {"replies": ["Hello"]}}
    run = "haystack.chat_generator.run"
    spans = [
        span(answered, name="haystack.component.run", ends=2),
        span(tried, name=run, id="s2", parent="s1", status="ERROR"),
        span(tried, name=run, id="s3", parent="s1", at=1),
    ]
    told = {one.span_id: one for one in derive(spans, []).llm_calls}
    assert {place: one.error_type for place, one in told.items()} == {"s1": None, "s2": "_OTHER"}
    assert told["s1"].output_messages


def test_a_haystack_tool_that_tells_the_model_of_its_error_failed() -> None:
    key = "haystack.agent.step.tool"
    attributes = {
        "haystack.tool.name": "sun",
        "haystack.tool.error": True,
        f"{key}.input": {"city": "X"},
    }
    (tool,) = derive(
        [span({**attributes, f"{key}.output": {"error": "no"}}, name=key)], []
    ).tool_calls
    assert (tool.name, tool.arguments, tool.result) == ("sun", {"city": "X"}, {"error": "no"})
    assert tool.error_type == "tool_error"
