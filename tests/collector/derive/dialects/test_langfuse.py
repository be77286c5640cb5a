"""Langfuse's dialect."""

import json
from collections.abc import Callable

import pytest
from support.regressions import rows_of
from support.spans import ANSWER, chat, only_call, read_call, span, text_message

from otel_lightning.collector.derive.assemble import derive
from otel_lightning.collector.derive.rows import LlmCall

PLAIN_QUESTION = {"role": "user", "content": "Is it sunny in Rome?"}


def test_langfuses_keys_on_a_span_of_another_dialect_do_not_hide_what_that_says() -> None:
    added = {"langfuse.observation.type": "generation", "langfuse.observation.model.name": "m"}
    call = read_call(
        span(chat([text_message("user", "Hi")], {}, {"gen_ai.response.id": "r1", **added}))
    )
    assert (call.dialect, call.response_id) == ("semconv", "r1")


@pytest.mark.parametrize("wrote", [str, json.dumps], ids=["JavaScript", "Python"])
def test_the_node_of_a_graph_is_langfuses_agent_only_if_no_agent_is_named(
    wrote: Callable[[str], str],
) -> None:
    metadata = "langfuse.observation.metadata"
    node = {"langfuse.observation.type": "generation", f"{metadata}.langgraph_node": wrote("plan")}
    named = {**node, f"{metadata}.lc_agent_name": wrote("writer")}
    calls = [only_call(span(one)) for one in (node, named, {**named, "gen_ai.agent.name": "boss"})]
    assert [call.agent_name for call in calls] == ["plan", "writer", "boss"]


def test_langfuse_counts_cached_and_reasoning_tokens_apart() -> None:
    details = {
        "input": 34, "input_cached_tokens": 4, "output": 10, "output_reasoning_tokens": 2,
        "total": 50,
    }  # fmt: skip
    kind = {"langfuse.observation.type": "generation"}
    call = only_call(span({**kind, "langfuse.observation.usage_details": details}))
    assert (call.input_tokens, call.output_tokens) == (38, 12)
    assert (call.cached_input_tokens, call.reasoning_tokens) == (4, 2)


def test_the_only_item_of_a_streamed_response_in_langfuse_is_read_with_its_id() -> None:
    """Langfuse writes several items as a list, and one without it."""
    told = "langfuse.observation."
    text = {"type": "output_text", "text": "Hello"}
    item = {"type": "message", "role": "assistant", "content": [text]}
    given = {
        f"{told}type": "generation",
        f"{told}input": {"input": "Hi"},
        f"{told}output": item,
        f"{told}metadata.object": '"response"',
        f"{told}metadata.id": '"resp_1"',
        f"{told}metadata.status": '"completed"',
    }
    call = only_call(span(given))
    assert (call.response_id, call.finish_reason) == ("resp_1", "stop")
    assert [message["parts"] for message in call.output_messages or []] == [ANSWER["parts"]]


def langfuse(sent: object, answer: object, **more: object) -> LlmCall:
    """Return the call of a generation of Langfuse's; `more` has its further keys."""
    told = {"type": "generation", "input": sent, "output": answer}
    told |= {key.replace("__", "."): value for key, value in more.items()}
    return only_call(span({f"langfuse.observation.{key}": value for key, value in told.items()}))


@pytest.mark.parametrize("reason", ['"length"', "length"])
def test_langfuses_metadata_has_the_finish_reason_of_a_stream(reason: str) -> None:
    call = langfuse([PLAIN_QUESTION], "It is", metadata__finish_reason=reason)
    assert call.finish_reason == "length"


def test_langfuses_metadata_has_the_other_fields_of_a_response() -> None:
    system = {"role": "system", "content": "Answer about the weather."}
    fields = {"object": '"response"', "id": '"resp_1"', "status": '"completed"'}
    asked = {"type": "function_call", "call_id": "c1", "name": "sun", "arguments": "{}"}
    call = langfuse(
        {"input": [system, PLAIN_QUESTION]},
        [asked],
        metadata__instructions='"Answer about the weather."',
        **{f"metadata__{name}": value for name, value in fields.items()},
    )
    assert (call.response_id, call.finish_reason) == ("resp_1", "tool_calls")
    assert [said["role"] for said in call.input_messages or ()] == ["system", "user"]


def test_langfuses_metadata_has_the_system_prompt_as_json_or_as_it_is() -> None:
    expected = text_message("system", "Be brief.")
    for text in ('"Be brief."', "Be brief."):
        call = langfuse({"input": [PLAIN_QUESTION]}, "Yes.", metadata__instructions=text)
        assert (call.input_messages or [])[0] == expected


def test_langfuse_lists_the_messages_of_several_choices() -> None:
    texts = [{"role": "assistant", "content": text} for text in ("Yes.", "No.")]
    several = langfuse([PLAIN_QUESTION], texts, model__parameters={"n": 2})
    assert several.output_messages == [
        text_message("assistant", "Yes."),
        text_message("assistant", "No."),
    ]
    one = langfuse([PLAIN_QUESTION], texts, model__parameters={"n": 1})
    assert len(one.output_messages or ()) == 1


def test_a_stream_in_langfuse_for_javascript_names_the_model_asked_for_and_joins_calls() -> None:
    offered = [{"type": "function", "function": {"name": name}} for name in ("sun", "rain")]
    joined = {"function": {"name": "rain", "arguments": '{"city": "Rome"}{"city": "Oslo"}'}}
    keys = {
        "type": "generation",
        "input": {"messages": [PLAIN_QUESTION], "tools": offered},
        "output": {"tool_calls": [joined]},
        "model.name": "m",
        "model.parameters": {"stream": True},
    }
    call = only_call(span({f"langfuse.observation.{key}": value for key, value in keys.items()}))
    assert (call.request_model, call.response_model) == ("m", None)
    parts = [part for message in call.output_messages or () for part in message["parts"]]
    # Which of the two calls has the one name that was kept is not said.
    assert [(part["name"], part["arguments"]["city"]) for part in parts] == [
        (None, "Rome"),
        (None, "Oslo"),
    ]


def test_a_stream_of_langfuse_is_found_without_the_ids_that_its_output_lacks() -> None:
    function = {"name": "sun", "arguments": '{"city": "Rome"}'}
    asks = {"id": "c1", "type": "function", "function": function}
    messages = [
        {"role": "assistant", "content": None, "tool_calls": [asks]},
        {"role": "tool", "tool_call_id": "c1", "content": "It shines."},
    ]
    turns = [
        ([PLAIN_QUESTION], {"tool_calls": [{"function": function}]}),
        ([PLAIN_QUESTION, *messages], "It is."),
    ]
    spans = [
        span(
            {
                "langfuse.observation.type": "generation",
                "langfuse.observation.input": {"messages": sent},
                "langfuse.observation.output": output,
                "langfuse.observation.model.parameters": {"stream": True},
            },
            trace=f"t{at}",
            at=2 * at,
        )
        for at, (sent, output) in enumerate(turns)
    ]
    assert len({call.rollout_id for call in derive(spans, []).llm_calls}) == 1


def test_tokens_of_the_priority_tier_are_counted_once() -> None:
    """Langfuse's handler for LangChain takes all other details out of the sums."""
    inputs = {"input": 10, "input_cache_read": 20, "input_priority": 30}
    outputs = {"output": 4, "output_reasoning": 5, "output_priority": 9, "output_priority_audio": 1}
    given = {
        "langfuse.observation.type": "generation",
        "langfuse.observation.usage_details": inputs | outputs,
    }
    call = read_call(span(given))
    assert (call.input_tokens, call.output_tokens) == (30, 9)
    assert (call.cached_input_tokens, call.reasoning_tokens) == (20, 5)


@pytest.mark.parametrize(
    ("details", "cost"),
    [
        ({"input": 0.1, "total": 0.3}, 0.3),
        ({"total": 0}, None),
        ({"input": 0.1}, None),
        ("[", None),
    ],
)
def test_the_total_that_langfuse_states_is_the_cost_of_a_call(
    details: object, cost: float | None
) -> None:
    prefix = "langfuse.observation."
    given = {f"{prefix}type": "generation", f"{prefix}cost_details": details}
    assert read_call(span(given)).cost == cost


def test_a_failed_response_after_a_tool_is_in_the_rollout_of_the_call_that_asked_for_the_tool() -> (
    None
):
    """JavaScript's SDK takes the instructions from the response, and there is none."""
    rows = rows_of("langfuse_js_failed")
    asked, failed, refused = rows.llm_calls
    assert (failed.rollout_id, failed.step) == (asked.rollout_id, 1)
    assert refused.rollout_id != asked.rollout_id
    assert [one.content for one in rows.llm_calls] == ["full", "truncated", "truncated"]
    (tool,) = rows.tool_calls
    assert tool.llm_span_id == asked.span_id
