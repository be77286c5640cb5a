"""HoneyHive's spans of decorated functions."""

from support.captures import load
from support.dialects_page import DATA
from support.spans import span

from otel_lightning.collector.derive.assemble import derive

TOOL = {"honeyhive_event_type": "tool", "honeyhive_event_name": "sun"}


def test_executions_of_a_recording_are_joined_with_what_asked_for_them() -> None:
    capture = load(DATA / "honeyhive" / "tasks.truth.json")
    derived = derive(capture.spans, capture.logs)
    asked = {call.span_id for call in derived.llm_calls}
    ran = [
        (tool.name, tool.arguments, tool.result, tool.error_type)
        for tool in derived.tool_calls
        if tool.source == "both" and tool.llm_span_id in asked
    ]
    assert sorted(ran, key=str) == [
        ("rain", {"city": "Ostia"}, "It rains in Ostia until noon.", None),
        ("rain", {"city": "Rome"}, "It rains in Rome until noon.", None),
        ("sun", {"city": "Atlantis"}, "Error: no such city: Atlantis", "ValueError"),
        ("sun", {"city": "Ostia"}, "The sun shines in Ostia.", None),
        ("sun", {"city": "Rome"}, "The sun shines in Rome.", None),
    ]


def test_values_that_were_flattened_are_put_together() -> None:
    attributes = {
        "honeyhive_inputs.places.0.city": "Rome",
        "honeyhive_inputs.places.1.city": "Oslo",
        "honeyhive_inputs.days": 2,
        "honeyhive_outputs.result.sun": True,
    }
    (tool,) = derive([span(TOOL | attributes)], []).tool_calls
    assert tool.arguments == {"places": [{"city": "Rome"}, {"city": "Oslo"}], "days": 2}
    assert tool.result == {"sun": True}
    (tool,) = derive([span(TOOL)], []).tool_calls
    assert (tool.arguments, tool.result) == (None, None)


def test_a_function_around_a_model_call_and_a_span_of_an_error_are_no_rows() -> None:
    model = {"honeyhive_event_type": "model", "honeyhive_inputs.messages": [{"role": "user"}]}
    error = {"honeyhive_event_type": "tool", "honeyhive_error": "no such city"}
    derived = derive([span(model, id="a"), span(error, id="b", name="sun_error")], [])
    assert derived.llm_calls == derived.tool_calls == derived.agent_runs == []
