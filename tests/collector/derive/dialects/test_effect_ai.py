"""Effect's AI packages: the executions of a toolkit."""

from support.spans import span

from otel_lightning.collector.derive.assemble import derive

RAN = {"tool": "sun", "parameters": '{\n  "city": "Rome"\n}'}


def test_a_toolkits_span_is_an_execution() -> None:
    (tool,) = derive([span(RAN, name="Toolkit.handle")], []).tool_calls
    assert (tool.name, tool.arguments, tool.result) == ("sun", {"city": "Rome"}, None)
    assert (tool.tool_call_id, tool.error_type) == (None, None)


def test_a_tool_that_fails_has_the_error_of_its_span() -> None:
    (tool,) = derive([span(RAN, name="Toolkit.handle", status="ERROR")], []).tool_calls
    assert tool.error_type == "_OTHER"


def test_other_spans_with_these_keys_are_no_executions() -> None:
    assert derive([span(RAN, name="handle")], []).tool_calls == []
