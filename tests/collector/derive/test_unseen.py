"""Rules that recordings of packages without a reader of their own have shown."""

import json
from typing import Any

import pytest
from support import trial_rows
from support.captures import load
from support.dialects_page import DATA
from support.frameworks import Framework
from support.spans import answered, asked, chat, log, said, span

from otel_lightning.collector.derive.assemble import derive
from otel_lightning.collector.derive.rows import Event, LlmCall, Span

ANYTHING = Framework("", "", "")
PLACE = {"trace": "t1", "span_id": "s1"}
QUESTION = {"role": "user", "content": "Is it sunny in Rome?"}
ASKED = {"gen_ai.request.model": "m", "gen_ai.input.messages": [QUESTION]}


def only_call(attributes: dict[str, object], **more: str) -> LlmCall:
    (call,) = derive([span(attributes, **more)], []).llm_calls
    return call


@pytest.mark.parametrize(
    "recording",
    [
        "langtrace/openai_chat",
        "lmnr/openai_chat",
        "lmnr/anthropic",
        "otel_botocore/bedrock",
        "traceloop_agno/agno",
        "ag2/tasks",
        "agentscope/tasks",
        "mastra/tasks",
        "mastra_0/tasks",
        "traceloop_llamaindex/tasks",
        "js_langfuse/tasks",
        "traceloop_groq/tasks",
        "weave_openai_agents/tasks",
        "pipecat/tasks",
        "js_traceloop_anthropic/tasks",
        "litellm/stream",
        "openinference_agno/responses",
        "openinference_portkey/tasks",
        "openinference_ollama/tasks",
        "openinference_langchain/anthropic",
        "traceloop_langchain/anthropic",
        "logfire_openai_agents/chat_stream",
        "monocle/tasks",
        "openinference_strands/tasks",
        "openinference_langchain/client_too",
        "openinference_litellm/tasks",
        "ms_agent_framework/handoff",
    ],
)
def test_calls_tools_and_rollouts_are_what_happened(recording: str) -> None:
    capture = load(DATA / f"{recording}.truth.json")
    derived = derive(capture.spans, capture.logs)
    assert trial_rows.of_derived(derived) == trial_rows.of_truth(capture.truth, ANYTHING)


def test_qwen_codes_reasoning_is_counted_and_its_tool_failed() -> None:
    capture = load(DATA / "qwen_code/tasks.truth.json")
    derived = derive(capture.spans, capture.logs)
    assert [call.reasoning_tokens for call in derived.llm_calls] == [4, 4]
    (tool,) = derived.tool_calls
    assert tool.result.startswith("Command: ")
    assert tool.error_type == "tool_error"


def test_responses_that_a_history_without_requests_repeats_answer_once() -> None:
    """TanStack AI writes no tool calls and no ids into its histories."""
    texts = ["sun in Rome", "sun in Oslo"]
    told = [{"role": "tool", "content": text} for text in texts]
    answers = [
        {"role": "assistant", "content": None, "tool_calls": [{"id": at, "function": called}]}
        for at, called in (
            ("c1", {"name": "sun", "arguments": '{"city": "Rome"}'}),
            ("c2", {"name": "sun", "arguments": '{"city": "Oslo"}'}),
        )
    ]
    spans = [
        span(
            {
                "gen_ai.operation.name": "chat",
                "gen_ai.input.messages": [QUESTION, *told[:at]],
                "gen_ai.output.messages": answers[at : at + 1],
            },
            id=f"s{at}",
            parent="root",
            at=2 * at,
        )
        for at in range(3)
    ]
    derived = derive([span({}, id="root", ends=9), *spans], [])
    assert sorted((tool.tool_call_id, tool.result) for tool in derived.tool_calls) == [
        ("c1", "sun in Rome"),
        ("c2", "sun in Oslo"),
    ]


def test_the_object_around_a_tools_text_is_none_of_its_result() -> None:
    keys = {"gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": "sun"}
    given = [{"output": "It shines."}, {"output": {"sun": True}}]
    spans = [
        span({**keys, "gen_ai.tool.call.result": one}, id=str(at)) for at, one in enumerate(given)
    ]
    results = [tool.result for tool in derive(spans, []).tool_calls]
    assert results == ["It shines.", {"output": {"sun": True}}]


def test_a_call_that_failed_is_known_by_what_it_asked_of_which_model() -> None:
    call = only_call({**ASKED, "error.type": "BadRequestError"}, status="ERROR")
    assert (call.error_type, call.finish_reason) == ("BadRequestError", "error")
    assert call.input_messages == [
        {"role": "user", "parts": [{"type": "text", "content": "Is it sunny in Rome?"}]}
    ]


def test_a_model_that_asks_nothing_is_no_call() -> None:
    assert not derive([span({"gen_ai.request.model": "m"})], []).llm_calls


def test_the_stop_reason_of_anthropics_own_messages_is_the_finish_reason() -> None:
    use = {"type": "tool_use", "id": "c1", "name": "sun", "input": {"city": "Rome"}}
    said = {"role": "assistant", "content": [use], "stop_reason": "tool_use"}
    assert only_call({**ASKED, "gen_ai.output.messages": [said]}).finish_reason == "tool_calls"


def test_an_answer_in_the_flattened_layout_is_read_without_a_prompt_in_it() -> None:
    answered = {
        "gen_ai.response.id": "resp_1",
        "gen_ai.completion.0.role": "assistant",
        "gen_ai.completion.0.content": "It is.",
    }
    call = only_call(answered)
    assert call.dialect == "indexed"
    assert call.output_messages == [
        {"role": "assistant", "parts": [{"type": "text", "content": "It is."}]}
    ]


def test_the_keys_of_the_conventions_count_more_than_the_flattened_layout_beside_them() -> None:
    tools = [{"type": "function", "name": "sun", "parameters": {"type": "object"}}]
    beside = {"gen_ai.prompt.0.role": "user", "gen_ai.prompt.0.content": QUESTION["content"]}
    call = only_call({**ASKED, **beside, "gen_ai.tool.definitions": tools}, status="ERROR")
    assert [tool["name"] for tool in call.tool_definitions or ()] == ["sun"]


@pytest.mark.parametrize(("second", "count"), [("c1", 1), ("c2", 2)])
def test_a_result_that_two_neighbouring_events_tell_is_one(second: str, count: int) -> None:
    told = [{"text": "It shines."}]
    block = {"toolResult": {"toolUseId": second, "content": told}}
    logs = [
        log("gen_ai.user.message", body={"content": "Sun and rain?"}, at=0.1, **PLACE),
        log("gen_ai.tool.message", body={"id": "c1", "content": told}, at=0.2, **PLACE),
        log("gen_ai.user.message", body={"content": [block]}, at=0.3, **PLACE),
    ]
    (call,) = derive([span({"gen_ai.operation.name": "chat"})], logs).llm_calls
    results = [said for said in call.input_messages or () if said["role"] == "tool"]
    assert len(results) == count


def test_a_response_whose_request_was_lost_takes_no_later_request() -> None:
    """Langtrace loses the tool calls of a history, but not their responses."""

    def answers(city: str, call_id: str) -> list[dict[str, object]]:
        lost = {"role": "assistant", "content": ""}
        return [lost, {"role": "tool", "tool_call_id": call_id, "content": f"sun in {city}"}]

    def asks(city: str, call_id: str) -> dict[str, object]:
        function = {"name": "sun", "arguments": json.dumps({"city": city})}
        requested = [{"id": call_id, "type": "function", "function": function}]
        return {"role": "assistant", "content": None, "tool_calls": requested}

    first = [QUESTION, *answers("Rome", "c1")]
    second = [*first, {"role": "user", "content": "And in Oslo?"}, *answers("Oslo", "c2")]
    turns = [([QUESTION], asks("Rome", "c1")), (first, asks("Oslo", "c2")), (second, None)]
    spans = [
        span(
            {
                "gen_ai.operation.name": "chat",
                "gen_ai.input.messages": sent,
                "gen_ai.output.messages": [said] if said else [],
            },
            id=f"s{at}",
            parent="root",
            at=2 * at,
        )
        for at, (sent, said) in enumerate(turns)
    ]
    derived = derive([span({}, id="root", ends=9), *spans], [])
    rows = [(tool.tool_call_id, tool.arguments, tool.result) for tool in derived.tool_calls]
    assert sorted(rows) == [
        ("c1", {"city": "Rome"}, "sun in Rome"),
        ("c2", {"city": "Oslo"}, "sun in Oslo"),
    ]


def test_agnos_record_of_an_execution_is_unwrapped_and_tells_of_a_failure() -> None:
    def tool(record: str, at: str) -> Span:
        keys = {"traceloop.span.kind": "tool", "gen_ai.tool.name": "sun"}
        return span({**keys, "traceloop.entity.output": record}, id=at)

    rest = "updated_session_state=None images=None"
    good, bad = derive(
        [
            tool(f"status='success' result='It shines.' error=None {rest}", "s1"),
            tool(f"status='failure' result=None error='no such city' {rest}", "s2"),
        ],
        [],
    ).tool_calls
    assert (good.result, good.told_error) == ("It shines.", False)
    assert (bad.result, bad.told_error) == ({"error": "no such city"}, True)


def test_anthropics_blocks_that_were_written_as_python_spells_them_are_read() -> None:
    """Logfire writes so the blocks of an answer that the agent sends back as it got them."""
    spelled = [
        "ThinkingBlock(signature='c2ln', thinking='I look.', type='thinking')",
        "TextBlock(citations=None, text='A moment.', type='text')",
        "ToolUseBlock(id='c1', caller=None, input={'city': 'Oslo'}, name='sun', type='tool_use')",
    ]
    turn = {"role": "assistant", "parts": [{"type": "text", "content": one} for one in spelled]}
    call = only_call(chat([QUESTION, turn, answered("c1", "It shines.")], said("assistant", "Yes")))
    (request,) = asked("c1", "sun", {"city": "Oslo"})["parts"]
    assert (call.input_messages or [])[1]["parts"] == [
        {"type": "reasoning", "content": "I look."},
        {"type": "text", "content": "A moment."},
        request,
    ]


def test_anthropics_blocks_that_were_written_as_json_are_read_once() -> None:
    """Traceloop writes so the blocks of LangChain's messages, beside the tool calls in them."""
    request = asked("c1", "sun", {"city": "Oslo"})
    blocks = [
        {"signature": "c2ln", "thinking": "I look.", "type": "thinking"},
        {"id": "c1", "input": {}, "name": "sun", "type": "tool_use"},
    ]
    texts = [{"type": "text", "content": json.dumps(block)} for block in blocks]
    turn = {"role": "assistant", "parts": [*texts, *request["parts"]]}
    call = only_call(chat([QUESTION], turn))
    thought = {"type": "reasoning", "content": "I look."}
    assert (call.output_messages or [])[0]["parts"] == [thought, *request["parts"]]


def test_reasoning_under_a_key_of_its_own_is_read() -> None:
    """Strands for TypeScript writes so the assistant's earlier messages."""
    request = asked("c1", "sun", {"city": "Oslo"})
    thought = {"reasoning": {"text": "I look.", "signature": "c2ln"}}
    turn = {"role": "assistant", "parts": [thought, *request["parts"]]}
    call = only_call(chat([QUESTION], turn))
    read = {"type": "reasoning", "content": "I look."}
    assert (call.output_messages or [])[0]["parts"] == [read, *request["parts"]]


@pytest.mark.parametrize("text", ['{"type": "tool_use"}', '{"type": "thought", "thinking": 1}'])
def test_an_answer_in_json_is_no_block(text: str) -> None:
    call = only_call(chat([QUESTION], said("assistant", text)))
    assert (call.output_messages or [])[0]["parts"] == [{"type": "text", "content": text}]


@pytest.mark.parametrize("text", ["TextBlock(", "TextBlock(text=hello())", "ToolUseBlock()"])
def test_a_text_that_only_begins_like_a_block_is_a_text(text: str) -> None:
    call = only_call(chat([QUESTION], said("assistant", text)))
    assert (call.output_messages or [])[0]["parts"] == [{"type": "text", "content": text}]


def test_a_model_that_answered_is_known_from_the_record_that_does_not_echo_the_request() -> None:
    """Logfire's span of a stream has the requested model under both keys."""
    models = {"gen_ai.request.model": "m", "gen_ai.response.model": "m"}
    asks = {**models, "gen_ai.operation.name": "chat", "gen_ai.input.messages": [QUESTION]}
    answers = {
        **asks,
        "gen_ai.response.model": "m-2026",
        "gen_ai.output.messages": [said("assistant", "Yes.")],
    }
    call, late = span(asks, id="a"), span(answers, id="b", trace="t2", at=1, ends=1)
    (merged,) = derive([call, late], []).llm_calls
    assert (merged.span_id, merged.request_model, merged.response_model) == ("a", "m", "m-2026")


@pytest.mark.parametrize("answer", [[], [said("assistant", "Ye")]])
def test_a_stream_that_broke_off_is_one_call_that_failed(answer: list[dict[str, Any]]) -> None:
    """Logfire's span of the request ends well; only its record of the answer has the error."""
    asks = {**ASKED, "gen_ai.operation.name": "chat"}
    answers = {**asks, "gen_ai.output.messages": answer, "error.type": "APIConnectionError"}
    call = span(asks, id="a")
    late = span(answers, id="b", trace="t2", at=1, ends=1, status="ERROR", message="Broken.")
    (merged,) = derive([call, late], []).llm_calls
    assert (merged.span_id, merged.error_type) == ("a", "APIConnectionError")
    assert (merged.error_message, merged.finish_reason) == ("Broken.", "error")


def test_a_layer_that_fails_after_the_answer_leaves_its_reason() -> None:
    (call,) = derive(
        [
            span(
                {
                    **chat([QUESTION], said("assistant", "Yes.")),
                    "gen_ai.response.finish_reasons": ["stop"],
                },
                status="ERROR",
            )
        ],
        [],
    ).llm_calls
    assert call.finish_reason == "stop"


def langfuse(sent: object, answer: object, **more: object) -> LlmCall:
    """Return the call of a generation of Langfuse's; `more` has its further keys."""
    told = {"type": "generation", "input": sent, "output": answer}
    told |= {key.replace("__", "."): value for key, value in more.items()}
    return only_call({f"langfuse.observation.{key}": value for key, value in told.items()})


@pytest.mark.parametrize("reason", ['"length"', "length"])
def test_langfuses_metadata_has_the_finish_reason_of_a_stream(reason: str) -> None:
    call = langfuse([QUESTION], "It is", metadata__finish_reason=reason)
    assert call.finish_reason == "length"


def test_langfuses_metadata_has_the_other_fields_of_a_response() -> None:
    system = {"role": "system", "content": "Answer about the weather."}
    fields = {"object": '"response"', "id": '"resp_1"', "status": '"completed"'}
    asked = {"type": "function_call", "call_id": "c1", "name": "sun", "arguments": "{}"}
    call = langfuse(
        {"input": [system, QUESTION]},
        [asked],
        metadata__instructions='"Answer about the weather."',
        **{f"metadata__{name}": value for name, value in fields.items()},
    )
    assert (call.response_id, call.finish_reason) == ("resp_1", "tool_calls")
    assert [said["role"] for said in call.input_messages or ()] == ["system", "user"]


def test_langfuses_metadata_has_the_system_prompt_as_json_or_as_it_is() -> None:
    expected = said("system", "Be brief.")
    for text in ('"Be brief."', "Be brief."):
        call = langfuse({"input": [QUESTION]}, "Yes.", metadata__instructions=text)
        assert (call.input_messages or [])[0] == expected


def test_langfuse_lists_the_messages_of_several_choices() -> None:
    texts = [{"role": "assistant", "content": text} for text in ("Yes.", "No.")]
    several = langfuse([QUESTION], texts, model__parameters={"n": 2})
    assert several.output_messages == [said("assistant", "Yes."), said("assistant", "No.")]
    one = langfuse([QUESTION], texts, model__parameters={"n": 1})
    assert len(one.output_messages or ()) == 1


@pytest.mark.parametrize(("text", "error"), [("", "Exception"), ("It is.", None)])
def test_langsmiths_run_of_langchain_failed_if_its_answer_has_no_text(
    text: str, error: str | None
) -> None:
    """LangChain keeps the server's refusal as the metadata of an empty answer."""
    message = {"content": text, "response_metadata": {"body": {"type": "error"}}}
    generation = {"text": text, "message": {"lc": 1, "id": ["AIMessage"], "kwargs": message}}
    told = {"langsmith.span.kind": "llm", "gen_ai.completion": {"generations": [[generation]]}}
    raised = Event("exception", 0, {"exception.type": "Exception"})
    (call,) = derive([span(told, status="OK", events=(raised,))], []).llm_calls
    assert call.error_type == error


def test_instructors_spans_around_a_model_call_are_no_tools() -> None:
    kind = {"openinference.span.kind": "TOOL", "output.value": '{"city": "Rome"}'}
    scope = "openinference.instrumentation.instructor"
    assert not derive([span(kind, name="instructor.patch", scope=scope)], []).tool_calls
    assert derive([span(kind, name="sun")], []).tool_calls


def test_what_tools_answered_within_an_assistants_message_keeps_its_place() -> None:
    """AgentScope keeps all that an agent does for one request in one message."""
    turn = [*asked("c1", "sun", {"city": "Oslo"})["parts"], *answered("c1", "It shines.")["parts"]]
    turn += said("assistant", "It is sunny.")["parts"]
    call = only_call(chat([{"role": "assistant", "parts": turn}], said("assistant", "Yes.")))
    assert call.input_messages == [
        asked("c1", "sun", {"city": "Oslo"}),
        answered("c1", "It shines."),
        said("assistant", "It is sunny."),
    ]


def test_a_request_from_before_a_rollout_is_not_executed_in_it() -> None:
    """Its history has the request from the first call on, but not as what this call answers."""
    before = [
        said("user", "Sun in Oslo?"),
        asked("c1", "sun", {"city": "Oslo"}),
        answered("c1", "It shines."),
        said("user", "And in Rome?"),
    ]
    asks, tells = asked("c2", "sun", {"city": "Rome"}), answered("c2", "It does not.")
    calls = [
        span(chat(before, asks), id="s1", parent="root"),
        span(chat([*before, asks, tells], said("assistant", "No.")), id="s2", parent="root", at=2),
    ]
    derived = derive([span({}, id="root", ends=9), *calls], [])
    assert [tool.tool_call_id for tool in derived.tool_calls] == ["c2"]


def test_tools_of_which_only_the_names_are_known_are_offered() -> None:
    call = only_call({**ASKED, "gen_ai.tool.definitions": ["sun", "rain"]}, status="ERROR")
    assert call.tool_definitions == [
        {"type": "function", "name": "sun"},
        {"type": "function", "name": "rain"},
    ]


def mastra(kind: str, attributes: dict[str, object], **more: Any) -> Span:
    return span({"mastra.span.type": kind, **attributes}, **more)


@pytest.mark.parametrize("content", ["full", "redacted"])
def test_an_outline_of_mastras_is_completed_if_the_runs_input_is_known(content: str) -> None:
    told = [{"role": "user", "content": "Is it sunny in Rome?"}]
    outline = [
        *told,
        {"role": "assistant", "content": "[tool: sun]"},
        {"role": "tool", "content": "[tool-result: sun]"},
    ]
    requested = {"toolCallId": "c1", "toolName": "sun", "args": {"city": "Rome"}}
    ran = {
        "gen_ai.tool.name": "sun",
        "gen_ai.tool.call.id": "c1",
        "gen_ai.tool.call.arguments": {"city": "Rome"},
        "gen_ai.tool.call.result": "It shines.",
    }

    def step(sent: object, answer: dict[str, object], **more: Any) -> Span:
        keys = {"mastra.model_step.input": sent, "mastra.model_step.output": answer}
        return mastra("model_step", keys, parent="run", **more)

    whole = {"mastra.model_generation.input": {"messages": told}}
    spans = [
        mastra("model_generation", whole if content == "full" else {}, id="run", ends=9),
        step(told, {"text": "", "toolCalls": [requested]}, id="s1"),
        mastra("tool_call", ran, id="tool", parent="s1", at=1),
        step(outline, {"text": "Yes.", "toolCalls": []}, id="s2", at=3),
    ]
    _, second = derive(spans, []).llm_calls
    assert second.content == content
    if content == "full":
        assert second.input_messages == [
            said("user", "Is it sunny in Rome?"),
            asked("c1", "sun", {"city": "Rome"}),
            answered("c1", "It shines."),
        ]


def test_results_in_words_of_the_tools_own_stand_in_mastras_outlines() -> None:
    """An agent that is a tool tells the model its text; its execution returned more."""
    question = {"role": "user", "content": "Is it sunny in Rome?"}
    names = ("sun", "agent-scout")
    requested = [{"toolCallId": name, "toolName": name, "args": {"city": "Rome"}} for name in names]
    told = {"role": "tool", "content": "[tool-result: sun]Rome is seen."}
    outline = [question, {"role": "assistant", "content": "[tool: sun][tool: agent-scout]"}, told]
    returned = {"sun": "It shines.", "agent-scout": {"text": "Rome is seen.", "thread": "t"}}

    def step(sent: object, answer: dict[str, object], **more: Any) -> Span:
        keys = {"mastra.model_step.input": sent, "mastra.model_step.output": answer}
        return mastra("model_step", keys, parent="run", **more)

    def ran(name: str) -> Span:
        keys = {
            "gen_ai.tool.name": name,
            "gen_ai.tool.call.id": name,
            "gen_ai.tool.call.arguments": {"city": "Rome"},
            "gen_ai.tool.call.result": returned[name],
        }
        return mastra("tool_call", keys, id=name, parent="s1", at=1 + names.index(name))

    whole = {"mastra.model_generation.input": {"messages": [question]}}
    spans = [
        mastra("model_generation", whole, id="run", ends=9),
        step([question], {"text": "", "toolCalls": requested}, id="s1"),
        *map(ran, names),
        step(outline, {"text": "Yes.", "toolCalls": []}, id="s2", at=3),
    ]
    derived = derive(spans, [])
    *_, sun, scout = derived.llm_calls[1].input_messages or []
    assert sun == answered("sun", "It shines.")
    assert scout == answered("agent-scout", "Rome is seen.")
    assert [tool.result for tool in derived.tool_calls] == list(returned.values())


def test_a_history_names_the_tool_call_whose_output_lost_its_id() -> None:
    """Langfuse for JavaScript loses the ids of tool calls in streams."""
    question, lost = said("user", "Sun in Rome?"), asked("", "sun", {"city": "Rome"})
    history = [question, asked("c1", "sun", {"city": "Rome"}), answered("c1", "It shines.")]
    ran = {
        "gen_ai.operation.name": "execute_tool",
        "gen_ai.tool.name": "sun",
        "gen_ai.tool.call.arguments": {"city": "Rome"},
        "gen_ai.tool.call.result": "It shines.",
    }
    spans = [
        span(chat([question], lost), id="s1", parent="root"),
        span(ran, id="tool", parent="root", at=1),
        span(chat(history, said("assistant", "Yes.")), id="s2", parent="root", at=2),
    ]
    derived = derive([span({}, id="root", ends=9), *spans], [])
    (tool,) = derived.tool_calls
    assert (tool.tool_call_id, tool.llm_span_id, tool.source) == ("c1", "s1", "both")


def test_a_stream_in_langfuse_for_javascript_names_the_model_asked_for_and_joins_calls() -> None:
    offered = [{"type": "function", "function": {"name": name}} for name in ("sun", "rain")]
    joined = {"function": {"name": "rain", "arguments": '{"city": "Rome"}{"city": "Oslo"}'}}
    keys = {
        "type": "generation",
        "input": {"messages": [QUESTION], "tools": offered},
        "output": {"tool_calls": [joined]},
        "model.name": "m",
        "model.parameters": {"stream": True},
    }
    call = only_call({f"langfuse.observation.{key}": value for key, value in keys.items()})
    assert (call.request_model, call.response_model) == ("m", None)
    parts = [part for message in call.output_messages or () for part in message["parts"]]
    # Which of the two calls has the one name that was kept is not said.
    assert [(part["name"], part["arguments"]["city"]) for part in parts] == [
        (None, "Rome"),
        (None, "Oslo"),
    ]


def test_axioms_keys_of_a_tool_are_read() -> None:
    ran = {"gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": "sun"}
    told = {"gen_ai.tool.arguments": {"city": "Oslo"}, "gen_ai.tool.message": '"It shines."'}
    (tool,) = derive([span({**ran, **told})], []).tool_calls
    assert (tool.arguments, tool.result) == ({"city": "Oslo"}, "It shines.")


def test_a_request_that_mastra_cut_off_is_completed_from_the_run_around_it() -> None:
    keys = {"gen_ai.operation.name": "chat", "input": {"messages": [QUESTION]}}
    requested = {"toolCallId": "c1", "toolName": "sun", "args": {"city": "Rome"}}
    first = {"input": {"body": {"model": "m", "messages": [QUESTION]}}, "body": {"id": "r1"}}
    ran = {"gen_ai.tool.name": "sun", "gen_ai.tool.input": {"city": "Rome"}}
    steps = [
        mastra(
            "model_step", {**first, "output": {"toolCalls": [requested]}}, id="s1", parent="run"
        ),
        mastra("tool_call", {**ran, "gen_ai.tool.output": "It shines."}, id="tool", parent="s1"),
        mastra(
            "model_step",
            {"input": {"body": '{"model": "m", "mess…[truncated]'}, "output": {"text": "Yes."}},
            id="s2",
            parent="run",
            at=3,
        ),
    ]
    run = mastra("model_generation", keys, id="run", ends=9)
    _, second = derive([run, *steps], []).llm_calls
    assert second.input_messages == [
        said("user", "Is it sunny in Rome?"),
        asked("c1", "sun", {"city": "Rome"}),
        answered("c1", "It shines."),
    ]


@pytest.mark.parametrize("parent", ["step", "inference"])
def test_a_piece_of_mastras_stream_that_its_text_lacks_is_reasoning(parent: str) -> None:
    step = {
        "mastra.model_step.input": [QUESTION],
        "mastra.model_step.output": {"text": "Yes. It shines.", "toolCalls": []},
    }
    pieces = [{"text": "The sky"}, {"text": " is blue."}, {"text": "Yes."}, {"toolName": "sun"}]
    spans = [
        mastra("model_step", step, id="step", ends=9),
        mastra("model_inference", {"gen_ai.request.model": "m"}, id="inference", parent="step"),
        *(
            mastra("model_chunk", {"mastra.model_chunk.output": piece}, id=f"c{at}", parent=parent)
            for at, piece in enumerate(pieces)
        ),
    ]
    (call,) = derive(spans, []).llm_calls
    (answer,) = call.output_messages or []
    assert [(part["type"], part["content"]) for part in answer["parts"]] == [
        ("reasoning", "The sky"),
        ("reasoning", " is blue."),
        ("text", "Yes. It shines."),
    ]
    assert call.content == "full"


def test_pieces_of_a_stream_without_its_call_are_nothing() -> None:
    piece = mastra("model_chunk", {"mastra.model_chunk.output": {"text": "Yes."}}, parent="gone")
    derived = derive([piece], [])
    assert (derived.llm_calls, derived.tool_calls, derived.unread) == ([], [], {})


def test_values_that_mastra_cut_are_unknown() -> None:
    function = {"name": "sun", "parameters": {"type": "object", "properties": {"c": "[MaxDepth]"}}}
    offered = [{"type": "function", "function": function}]
    request = {"model": "m", "messages": [QUESTION], "tools": offered}
    answer = {"text": "", "toolCalls": [{"toolCallId": "c1", "toolName": "sun", "args": {}}]}
    message = {"role": "assistant", "tool_calls": [{"id": "[MaxDepth]", "function": "[MaxDepth]"}]}
    response = {"id": "r1", "choices": [{"message": message, "finish_reason": "tool_calls"}]}
    given = {"input": {"body": request}, "output": answer, "body": response}
    (call,) = derive([mastra("model_step", given)], []).llm_calls
    assert call.tool_definitions == [{"type": "function", "name": "sun"}]
    assert call.response_id == "r1"
    parts = [part for message in call.output_messages or () for part in message["parts"]]
    assert [(part["id"], part["name"]) for part in parts] == [("c1", "sun")]


def test_a_finish_reason_that_is_a_plain_word_is_read() -> None:
    assert (
        only_call({**ASKED, "gen_ai.response.finish_reasons": "length"}).finish_reason == "length"
    )


@pytest.mark.parametrize(
    "attributes",
    [
        {
            "langfuse.observation.type": "generation",
            "langfuse.observation.input": [QUESTION],
            "langfuse.observation.model.parameters": [1],
        },
        {
            "mastra.span.type": "model_step",
            "mastra.model_step.input": [QUESTION],
            "mastra.metadata.modelMetadata": [1],
        },
    ],
    ids=["langfuse", "mastra"],
)
def test_a_list_in_the_place_of_an_object_costs_no_call(attributes: dict[str, object]) -> None:
    texts = {k: v if isinstance(v, str) else json.dumps(v) for k, v in attributes.items()}
    (message,) = only_call(texts).input_messages or []
    assert message["role"] == "user"


def test_litellms_own_id_of_a_request_that_failed_is_no_response_id() -> None:
    ids = {"litellm.call_id": "f2ecd686", "gen_ai.response.id": "f2ecd686"}
    call = only_call({**ASKED, **ids, "gen_ai.operation.name": "chat"}, status="ERROR")
    assert (call.dialect, call.response_id) == ("litellm", None)


@pytest.mark.parametrize("told", [{"gen_ai.request.stream": True}, {"llm.is_streaming": "True"}])
@pytest.mark.parametrize("streamed", [True, False])
def test_the_end_of_litellms_streams_may_be_late(
    told: dict[str, object], *, streamed: bool
) -> None:
    """A task of its own ends their span, when the next call may have started."""
    keys = {"litellm.call_id": "x", **(told if streamed else {})}
    question, lost = said("user", "Sun in Rome?"), {"role": "assistant", "parts": []}
    function = {"gen_ai.completion.0.function_call.name": "sun"}
    function["gen_ai.completion.0.function_call.arguments"] = '{"city": "Rome"}'
    asks = asked("c1", "sun", {"city": "Rome"})
    history = [question, asks, answered("c1", "It shines.")]
    first = chat([question], lost, {**keys, **function})
    second = chat(history, said("assistant", "Yes."), keys)
    calls = derive([span(first, trace="t1", ends=2), span(second, trace="t2", at=1)], []).llm_calls
    assert (len({call.rollout_id for call in calls}) == 1) is streamed


def test_item_ids_of_agno_are_replaced_by_the_ids_of_tool_calls_beside_them() -> None:
    both = {"id": "fc_1", "call_id": "call_1", "function": {"name": "sun", "arguments": "{}"}}
    told = [
        {"role": "user", "content": "Sun?"},
        {"role": "assistant", "tool_calls": [both]},
        {"role": "tool", "tool_call_id": "fc_1", "content": "It shines."},
    ]
    flat = "llm.input_messages"
    function = f"{flat}.1.message.tool_calls.0.tool_call"
    call = only_call({
        "openinference.span.kind": "LLM",
        "llm.model_name": "m",
        "input.value": {"messages": told},
        f"{flat}.0.message.role": "user",
        f"{flat}.0.message.content": "Sun?",
        f"{flat}.1.message.role": "assistant",
        f"{function}.id": "fc_1",
        f"{function}.function.name": "sun",
        f"{flat}.2.message.role": "tool",
        f"{flat}.2.message.tool_call_id": "fc_1",
        f"{flat}.2.message.content": "It shines.",
    })  # fmt: skip
    parts = [part for message in call.input_messages or () for part in message["parts"]]
    assert [part["id"] for part in parts[1:]] == ["call_1", "call_1"]


def test_tools_among_the_keyword_arguments_of_a_request_are_offered() -> None:
    """Portkey writes a call as it was made, with the `repr()` of what was not given."""
    function = {"type": "function", "function": {"name": "sun"}}
    request = {
        "model": "m",
        "messages": [QUESTION],
        "stream": "<openai.Omit object at 0x7f82efc79010>",
        "kwargs": {"tools": [function], "seed": 7},
    }
    kind = {"openinference.span.kind": "LLM", "llm.model_name": "m"}
    call = only_call({**kind, "input.value": request})
    assert [tool["name"] for tool in call.tool_definitions or ()] == ["sun"]
    assert call.request_params == {"seed": 7}


def test_a_users_message_whose_text_was_lost_leaves_the_call_incomplete() -> None:
    """LiteLLM's proxy writes the tool calls and results of Responses as empty texts of the user."""
    lost = [QUESTION, {"role": "user", "parts": [{"type": "text", "content": ""}]}]
    assert only_call(chat(lost, said("assistant", "Yes."))).content == "redacted"
    assert only_call(chat([QUESTION], said("assistant", ""))).content == "full"


def answered_without_ids(*results: str) -> LlmCall:
    """OpenLIT for JavaScript: two tool calls with ids, and responses as plain texts."""
    ids = ("c1", "c2")
    asks = [{"type": "tool_call", "id": one, "name": "sun", "arguments": {}} for one in ids]
    told = [{"role": "tool", "parts": [{"type": "text", "content": result}]} for result in results]
    history = [QUESTION, {"role": "assistant", "parts": asks}, *told]
    return only_call(chat(history, said("assistant", "It is.")))


def response_ids(call: LlmCall) -> list[tuple[str | None, str]]:
    parts = [part for message in call.input_messages or () for part in message["parts"]]
    return [(one["id"], one["response"]) for one in parts if one["type"] == "tool_call_response"]


def test_responses_without_ids_answer_as_many_tool_calls_in_order() -> None:
    assert response_ids(answered_without_ids("Rome", "Oslo")) == [("c1", "Rome"), ("c2", "Oslo")]


def test_fewer_responses_than_tool_calls_get_no_ids() -> None:
    assert response_ids(answered_without_ids("Rome")) == [(None, "Rome")]


@pytest.mark.parametrize(("answering", "known"), [("m-2026", "m-2026"), ("m", None)])
def test_a_model_that_the_openai_agents_sdk_may_only_repeat_is_not_the_responding_one(
    answering: str, known: str | None
) -> None:
    message = {"role": "assistant", "content": "It is."}
    response = {"id": "r1", "model": answering, "choices": [{"index": 0, "message": message}]}
    kind = {"openinference.span.kind": "LLM", "llm.model_name": "m"}
    call = only_call({**kind, "input.value": [QUESTION], "output.value": [response]})
    assert (call.request_model, call.response_model) == ("m", known)


def test_a_stream_of_langfuse_is_found_without_the_ids_that_its_output_lacks() -> None:
    function = {"name": "sun", "arguments": '{"city": "Rome"}'}
    asks = {"id": "c1", "type": "function", "function": function}
    told = [
        {"role": "assistant", "content": None, "tool_calls": [asks]},
        {"role": "tool", "tool_call_id": "c1", "content": "It shines."},
    ]
    turns = [([QUESTION], {"tool_calls": [{"function": function}]}), ([QUESTION, *told], "It is.")]
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


def test_an_input_that_was_written_late_ends_before_the_calls_own_answer() -> None:
    told = [
        {"role": "user", "content": "Oslo?"},
        {"role": "assistant", "content": "Sun."},
        {"role": "user", "content": "Rome?"},
    ]
    assert lengths_of_inputs(told, ["Sun.", "Rain."]) == [1, 3]


def test_an_answer_in_the_words_of_one_in_another_trace_ends_no_history() -> None:
    told = [
        {"role": "user", "content": "Oslo?"},
        {"role": "assistant", "content": "Sun."},
        {"role": "user", "content": "Rome?"},
    ]
    assert lengths_of_inputs(told, ["Sun."]) == [3]
    repeated = [*told, {"role": "assistant", "content": "Sun."}, {"role": "user", "content": "So?"}]
    assert lengths_of_inputs(told, ["Sun.", "Yes."], repeated) == [3, 5]


def lengths_of_inputs(
    told: list[Any], answers: list[str], later: list[Any] | None = None
) -> list[int]:
    """Return the number of messages in the input of each call of a trace.

    The first call's input is recorded as `told`, and the others' as `later`, if that is given.
    """
    calls = [
        span(
            {
                "langsmith.span.kind": "llm",
                "gen_ai.prompt": {"model": "m", "messages": (later or told) if at else told},
                "gen_ai.completion": {
                    "id": f"c{at}",
                    "choices": [{"message": {"role": "assistant", "content": text}}],
                },
            },
            id=f"s{at}",
            parent="agent",
            at=2 * at,
        )
        for at, text in enumerate(answers)
    ]
    return [len(call.input_messages or []) for call in derive(calls, []).llm_calls]


def test_langsmiths_joined_tool_calls_are_separate_and_the_first_has_its_id() -> None:
    asked = {"name": "sunrain", "arguments": '{"a": 1}{"a": 2}'}
    message = {"role": "assistant", "tool_calls": [{"id": "call_1", "function": asked}]}
    tools = [{"type": "function", "function": {"name": name}} for name in ("sun", "rain")]
    sent = {"model": "m", "messages": [{"role": "user", "content": "Hi"}], "tools": tools}
    said = {"id": "c", "choices": [{"message": message, "finish_reason": "tool_calls"}]}
    given = {"langsmith.span.kind": "llm", "gen_ai.prompt": sent, "gen_ai.completion": said}
    (call,) = derive([span(given)], []).llm_calls
    parts = (call.output_messages or [])[0]["parts"]
    told = [(part["id"], part["name"], part["arguments"]) for part in parts]
    assert told == [("call_1", "sun", {"a": 1}), (None, "rain", {"a": 2})]


MOVED = {
    "ai.operationId": "ai.generateText.doGenerate",
    "ai.telemetry.functionId": "weather",
    "ai.usage.cachedInputTokens": 3,
    "ai.usage.reasoningTokens": 2,
    "ai.response.reasoning": "I look outside.",
    "gen_ai.provider.name": "openai",
    "gen_ai.system": "openai.chat",
    "gen_ai.request.model": "m",
    "gen_ai.response.model": "m-1",
    "gen_ai.response.id": "chatcmpl-1",
    "gen_ai.response.finish_reasons": ["tool-calls"],
    "gen_ai.usage.input_tokens": 34,
    "gen_ai.usage.output_tokens": 12,
    "gen_ai.tool.definitions": [
        {"type": "function", "name": "sun", "inputSchema": {"type": "object"}}
    ],
    "gen_ai.input.messages": [said("user", "Is it sunny in Rome?")],
}
"""A call of the AI SDK 6, as Traceloop's SDK 0.27 for JavaScript rewrites it."""


def test_the_content_that_traceloops_sdk_moves_in_spans_of_the_ai_sdk_is_read() -> None:
    answer = {"role": "assistant", "finish_reason": "tool_call"}
    part = {"type": "tool_call", "id": "c1", "name": "sun", "arguments": {"city": "Rome"}}
    given = {**MOVED, "gen_ai.output.messages": [{**answer, "parts": [part]}]}
    ran = {
        "ai.operationId": "ai.toolCall",
        "gen_ai.tool.name": "sun",
        "gen_ai.tool.call.id": "c1",
        "gen_ai.tool.call.arguments": '{"city": "Rome"}',
        "gen_ai.tool.call.result": '"It shines."',
    }
    derived = derive([span(given), span(ran, id="s2", at=2)], [])
    (call,), (tool,) = derived.llm_calls, derived.tool_calls
    assert (call.dialect, call.agent_name, call.provider) == ("vercel", "weather", "openai")
    assert call.input_messages == [said("user", "Is it sunny in Rome?")]
    assert [one["type"] for one in (call.output_messages or [])[0]["parts"]] == [
        "reasoning",
        "tool_call",
    ]
    assert (call.finish_reason, call.content) == ("tool_calls", "full")
    assert (call.input_tokens, call.cached_input_tokens, call.reasoning_tokens) == (34, 3, 2)
    assert [one["name"] for one in call.tool_definitions or ()] == ["sun"]
    assert (tool.arguments, tool.result) == ({"city": "Rome"}, "It shines.")


def test_a_streamed_answer_whose_tool_calls_traceloops_sdk_loses_is_truncated() -> None:
    lost = {
        "role": "assistant",
        "finish_reason": "tool_call",
        "parts": [{"type": "text", "content": ""}],
    }
    ran = {
        "ai.operationId": "ai.toolCall",
        "gen_ai.tool.name": "sun",
        "gen_ai.tool.call.id": "c1",
        "gen_ai.tool.call.arguments": '{"city": "Rome"}',
    }
    spans = [
        span({"ai.operationId": "ai.streamText"}, id="outer", ends=9),
        span({**MOVED, "gen_ai.output.messages": [lost]}, id="call", parent="outer", at=1),
        span(ran, id="tool", parent="outer", at=3),
    ]
    (call,) = derive(spans, []).llm_calls
    kinds = [part["type"] for part in (call.output_messages or [])[0]["parts"]]
    assert (kinds, call.content) == (["reasoning", "tool_call"], "truncated")


@pytest.mark.parametrize(("provider", "is_object"), [("gcp.gen_ai", True), ("openai", False)])
def test_a_response_that_traceloop_wrote_as_text_is_geminis_object(
    provider: str, *, is_object: bool
) -> None:
    """What a tool tells Gemini is an object. Other models are told a text, which may be JSON."""
    told = '{"result": "It shines."}'
    history = [QUESTION, asked("", "sun", {"city": "Rome"}), answered("", told)]
    keys = chat(history, said("assistant", "Yes."), {"gen_ai.provider.name": provider})
    (part,) = (only_call(keys).input_messages or [])[2]["parts"]
    assert part["response"] == (json.loads(told) if is_object else told)


LABELLED = {"openinference.span.kind": "LLM", "gen_ai.operation.name": "chat"}


@pytest.mark.parametrize("key", ["gen_ai.response.finish_reasons", "ai.response.finishReason"])
def test_the_error_of_a_tool_on_other_spans_of_its_trace_is_none_of_the_call(key: str) -> None:
    """OpenInference's processor for Vercel's AI SDK writes it there."""
    ended = {"gen_ai.request.model": "m", key: ["stop"]}
    if key.startswith("ai."):
        ended |= {"ai.operationId": "ai.generateText.doGenerate"}
    call = only_call(LABELLED | ended, status="ERROR", message="no such city")
    assert (call.error_type, call.error_message) == (None, None)
    own = span(LABELLED | ended, status="ERROR", events=(Event("exception", 0, {}),))
    (failed,) = derive([own], []).llm_calls
    assert failed.error_type == "_OTHER"
    assert only_call(LABELLED | {"gen_ai.request.model": "m"}, status="ERROR").error_type


def test_a_span_that_openinferences_processor_only_labelled_is_the_conventions() -> None:
    labels = {"openinference.span.kind": "EMBEDDING", "embedding.model_name": "m"}
    told = {"gen_ai.request.model": "m", "gen_ai.usage.input_tokens": 8}
    call = only_call({"gen_ai.operation.name": "embeddings", **labels, **told})
    assert (call.dialect, call.operation) == ("semconv", "embeddings")
    assert (call.request_model, call.response_model, call.input_tokens) == ("m", None, 8)


def test_laminars_copies_of_vercels_spans_are_runs_and_executions() -> None:
    """Laminar names no operation of a tool, and states the error of a call on the run alone."""
    failed = Event("exception", 0, {"exception.type": "AI_APICallError"})
    run = {"ai.operation": "ai.generateText", "ai.functionId": "desk", "lmnr.span.type": "DEFAULT"}
    tool = {
        "lmnr.span.type": "TOOL",
        "ai.toolCall.name": "sun",
        "ai.toolCall.id": "call_1",
        "ai.toolCall.args": {"city": "Rome"},
        "ai.toolCall.result": "It shines.",
        "lmnr.span.input": {"city": "Rome"},
        "lmnr.span.output": "It shines.",
    }
    history = [said("user", "Hi"), asked("call_1", "sun", {"city": "Rome"})]
    last = {**ASKED, "gen_ai.input.messages": [*history, answered("call_1", "It shines.")]}
    derived = derive(
        [
            span(run, id="run", status="ERROR", events=(failed,)),
            span(tool, id="tool", parent="run", name="ai.tool sun", at=1),
            span({**last, "lmnr.span.type": "LLM"}, id="last", parent="run", at=2),
        ],
        [],
    )
    assert [(one.name, one.tool_call_id) for one in derived.tool_calls] == [("sun", "call_1")]
    assert [one.name for one in derived.agent_runs] == ["desk"]
    (call,) = derived.llm_calls
    assert (call.agent_name, call.error_type) == ("desk", "AI_APICallError")


@pytest.mark.parametrize(
    ("output", "told"),
    [
        ({"type": "text", "value": "It shines."}, "It shines."),
        ({"type": "json", "value": "It shines."}, '"It shines."'),
        ({"type": "json", "value": {"sun": True}}, {"sun": True}),
    ],
    ids=["text", "a text as JSON", "an object"],
)
def test_a_text_that_vercels_sdk_sends_as_json_has_its_quotes(output: Any, told: Any) -> None:
    result = {"type": "tool-result", "toolCallId": "call_1", "output": output}
    prompt = [{"role": "user", "content": "Hi"}, {"role": "tool", "content": [result]}]
    given = {"ai.operationId": "ai.generateText.doGenerate", "ai.prompt.messages": prompt}
    (_, tool) = only_call(given).input_messages or []
    assert tool["parts"][0]["response"] == told


def test_a_request_under_a_vendors_prefix_is_read_whole() -> None:
    """Judgment for JavaScript has the provider's request, and of a stream the text alone."""
    request = {"model": "m", "input": "Is it sunny in Rome?", "stream": True, "top_p": 0.5}
    given = {
        "judgment.span_kind": "llm",
        "judgment.llm.model": "m-1",
        "judgment.input": request,
        "judgment.output": '{"sun":true}',
        "judgment.usage.metadata": {"input_tokens": 7, "output_tokens": 2},
    }
    call = only_call(given)
    assert (call.request_model, call.response_model) == ("m", "m-1")
    assert (call.input_tokens, call.output_tokens) == (7, 2)
    assert call.request_params == {"stream": True, "top_p": 0.5}
    assert call.input_messages == [said("user", "Is it sunny in Rome?")]
    assert [one["parts"] for one in call.output_messages or []] == [
        [{"type": "text", "content": '{"sun":true}'}]
    ]
    # A stream's tool calls are not in its text.
    assert call.content == "truncated"
    assert only_call({**given, "judgment.llm.model": "m"}).response_model is None
