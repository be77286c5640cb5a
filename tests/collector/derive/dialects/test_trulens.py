"""TruLens: spans around functions, which need not be given and return all of a model call."""

from typing import Any

from support.spans import span, text_message

from otel_lightning.collector.derive.assemble import derive
from otel_lightning.collector.derive.rows import Derived

OWN = "ai.observability"


def recorded(kind: str, **keys: Any) -> Derived:
    """Derive the span of a function `app.Desk.ask`."""
    told = {f"{OWN}.{key.replace('__', '.')}": value for key, value in keys.items()}
    place = {f"{OWN}.span_type": kind, f"{OWN}.call.function": "app.Desk.ask"}
    return derive([span({**place, **told})], [])


def test_a_function_that_returns_a_text_may_hide_a_part_of_the_call() -> None:
    (call,) = recorded("generation", call__kwargs__q="Sun?", call__return="Yes.").llm_calls
    assert call.input_messages == [text_message("user", "Sun?")]
    assert call.output_messages == [text_message("assistant", "Yes.")]
    assert call.content == "truncated"


def test_the_types_of_spans_tell_runs_and_retrievals_from_calls() -> None:
    (run,) = recorded("agent").agent_runs
    assert (run.name, run.kind) == ("ask", "agent")
    contexts = ["Rome is sunny."]
    found = recorded(
        "retrieval", retrieval__query_text="sun", retrieval__retrieved_contexts=contexts
    )
    (retrieval,) = found.retrievals
    assert (retrieval.query, retrieval.documents) == ("sun", [{"content": "Rome is sunny."}])
    other = recorded("eval")
    assert not [*other.llm_calls, *other.agent_runs, *other.tool_calls]


def test_an_input_of_which_only_the_last_message_is_written_is_truncated() -> None:
    """Traceloop for Vertex AI writes neither the history of a chat nor the instructions."""
    attributes = {
        "llm.request.type": "completion",
        "gen_ai.prompt.0.role": "user",
        "gen_ai.prompt.0.content": "And in Oslo?",
        "gen_ai.completion.0.content": "No.",
    }
    for scope, content in (("opentelemetry.instrumentation.vertexai", "truncated"), ("x", "full")):
        (call,) = derive([span(attributes, scope=scope)], []).llm_calls
        assert call.content == content
