"""Records of one call by a framework and by the client that it calls, next to each other."""

from typing import Any

from support.spans import chat, span, text_message, tool_request, trace_keys

from otel_lightning.collector.derive.assemble import derive
from otel_lightning.collector.derive.rows import LlmCall, Span

HELLO = text_message("assistant", "Hello")


def record(id: str, at: float, answer: Any = HELLO, **more: Any) -> Span:  # noqa: A002
    """Return a record of a call with one input; a response id makes it the client's."""
    named = {"gen_ai.response.id": more.pop("named")} if "named" in more else {}
    place = {"parent": "step", **more}
    return span(
        {**chat([text_message("user", "Hi")], answer), **named},
        id=id,
        at=at,
        ends=at + 0.1,
        **place,
    )


def calls(*spans: Span) -> list[LlmCall]:
    return derive(spans, []).llm_calls


def test_a_framework_record_that_ended_before_the_client_began_is_the_same_call() -> None:
    (call,) = calls(record("a", 0), record("b", 1, named="r1"))
    assert (call.span_id, call.merged_span_ids, call.response_id) == ("b", ["a"], "r1")


def root(id: str, at: float, **more: Any) -> Span:  # noqa: A002
    return record(id, at, trace=id, parent=None, **more)


def test_records_that_are_traces_of_their_own_are_of_one_call_if_the_client_began_soon() -> None:
    """LlamaIndex writes so a streamed call outside of an agent."""
    spans = [root("a", 0), root("b", 1, named="r1")]
    (call,) = calls(*spans)
    assert (call.response_id, call.merged_span_ids) == ("r1", ["a"])
    shared = [trace_keys([one], []) for one in spans]
    assert shared[0] & shared[1]  # so they are derived together in a store
    assert len(calls(root("a", 0), root("b", 11, named="r1"))) == 2
    assert len(calls(root("a", 1), root("b", 0, named="r1"))) == 2
    assert len(calls(root("a", 0), record("b", 1, named="r1"))) == 2
    elsewhere = root("b", 1, named="r1")._replace(resource={"service.name": "other"})
    assert len(calls(root("a", 0), elsewhere)) == 2


def test_of_records_that_are_traces_of_their_own_each_is_in_one_pair() -> None:
    spans = [root("a", 0), root("b", 1, named="r1"), root("c", 1.5, named="r2"), root("d", 2)]
    found = calls(*spans, root("e", 3, named="r3"))
    assert [[*call.merged_span_ids] for call in found] == [["a"], [], ["d"]]


def test_calls_that_were_repeated_stay_as_many_as_the_client_made() -> None:
    spans = [record("a", 0), record("b", 1, named="r1"), record("c", 2), record("d", 3, named="r2")]
    first, second = calls(*spans)
    assert [first.merged_span_ids, second.merged_span_ids] == [["a"], ["c"]]
    assert len(calls(*spans, record("e", 4, named="r3"))) == 3


def test_parts_in_another_order_are_the_same_answer() -> None:
    tool = tool_request("c1", "sun", {"city": "Rome"})["parts"]
    text_first = {"role": "assistant", "parts": [*HELLO["parts"], *tool]}
    text_last = {"role": "assistant", "parts": [*tool, *HELLO["parts"]]}
    assert len(calls(record("a", 0, text_first), record("b", 1, text_last, named="r1"))) == 1


def test_another_answer_or_another_parent_is_another_call() -> None:
    other = text_message("assistant", "Bye")
    assert len(calls(record("a", 0), record("b", 1, other, named="r1"))) == 2
    assert len(calls(record("a", 0), record("b", 1, named="r1", parent="next"))) == 2
    assert len(calls(record("a", 0), record("b", 1))) == 2


def test_equal_answers_of_different_models_are_different_calls() -> None:
    def of(model: str, id: str, at: float, **more: Any) -> Span:  # noqa: A002
        made = record(id, at, **more)
        return made._replace(attributes=made.attributes | {"gen_ai.request.model": model})

    assert len(calls(of("llama3", "a", 0), of("gpt-4o", "b", 1, named="r1"))) == 2
    assert len(calls(of("openai/gpt-4o", "a", 0), of("gpt-4o", "b", 1, named="r1"))) == 1


def nested(outer: Any, inner: Any) -> list[LlmCall]:
    around = span(chat([text_message("user", "Hi")], outer), id="a", ends=3)
    return calls(around, record("b", 1, inner, named="r1", parent="a"))


def test_a_framework_that_lost_the_tool_calls_of_an_answer_recorded_the_same_call() -> None:
    both = {
        "role": "assistant",
        "parts": [*HELLO["parts"], *tool_request("c1", "sun", {})["parts"]],
    }
    (call,) = nested(HELLO, both)
    assert [part["type"] for part in (call.output_messages or [])[0]["parts"]] == [
        "text",
        "tool_call",
    ]
    assert len(nested(text_message("assistant", "Bye"), both)) == 2


def test_structured_output_that_a_tool_call_made_is_the_same_call() -> None:
    made = tool_request("c1", "Place", {"city": "Rome"})
    (call,) = nested(text_message("assistant", '{"city":"Rome"}'), made)
    assert (call.output_messages or [])[0]["parts"][0]["type"] == "tool_call"
    assert len(nested(text_message("assistant", '{"city":"Oslo"}'), made)) == 2


def counted(id: str, at: float, answered: int, **more: Any) -> Span:  # noqa: A002
    """Return a record of a streamed call with token counts; a response id makes it the client's."""
    counts = {"gen_ai.usage.input_tokens": 9, "gen_ai.usage.output_tokens": answered}
    one = record(id, at, **more)
    keys = one.attributes | {key: str(value) for key, value in counts.items()}
    if "named" in more:
        return one._replace(attributes=keys, scope_name="client")
    content = {"gen_ai.input.messages", "gen_ai.output.messages"}
    kept = {key: value for key, value in keys.items() if key not in content}
    return one._replace(attributes=kept, scope_name="framework")


def test_a_framework_record_without_messages_is_known_by_its_counts() -> None:
    """Google ADK writes so the streams that a client's package records next to it."""
    spans = [counted("a", 0, 3), counted("b", 1, 3, named="r1")]
    again = [counted("c", 2, 3), counted("d", 3, 3, named="r2")]
    found = calls(*spans, *again)
    assert [(one.response_id, one.merged_span_ids) for one in found] == [
        ("r1", ["a"]),
        ("r2", ["c"]),
    ]
    assert len(calls(counted("a", 0, 4), spans[1])) == 2
    assert len(calls(counted("a", 2, 3), spans[1])) == 2
    assert len(calls(spans[0], spans[1]._replace(scope_name="framework"))) == 2
    assert len(calls(spans[0], spans[1]._replace(parent_span_id="other"))) == 2
