"""Recordings whose rows are compared with the tasks that were run."""

import pytest
from support import trial_rows
from support.captures import load
from support.dialects_page import DATA
from support.facts import pair
from support.frameworks import Framework

from otel_lightning.collector.derive.assemble import derive

ANYTHING = Framework("", "", "")


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
        "langchain_azure_ai/tasks",
    ],
)
def test_calls_tools_and_rollouts_equal_those_of_the_recorded_tasks(recording: str) -> None:
    capture = load(DATA / f"{recording}.truth.json")
    derived = derive(capture.spans, capture.logs)
    assert trial_rows.of_derived(derived) == trial_rows.of_truth(capture.truth, ANYTHING)


@pytest.mark.parametrize(
    "recording",
    [
        "autogen_teams/tasks",
        "ag2/long",
        "otel_botocore/cached",
        "openinference_bedrock/thinking",
        "otel_genai_bedrock/converse",
        "otel_genai_bedrock/invoke",
        "otel_genai_openai_span/text_and_tools",
        "openlit/text_and_tools",
        "openinference_langchain/interrupt",
    ],
)
def test_each_task_of_a_recording_is_one_rollout(recording: str) -> None:
    capture = load(DATA / f"{recording}.truth.json")
    pairs = pair(derive(capture.spans, capture.logs), capture.truth)
    found = {(true["task"], call.rollout_id if call else None) for true, call in pairs}
    tasks = {task for task, _ in found}
    assert len(tasks) == len({rollout for _, rollout in found}) == len(found)


def test_an_input_that_lacks_the_tool_calls_beside_a_text_is_truncated() -> None:
    """OpenLIT writes the text of such a message, and the results of its tool calls."""
    capture = load(DATA / "openlit/text_and_tools.truth.json")
    asking, answered = derive(capture.spans, capture.logs).llm_calls
    assert (asking.content, answered.content) == ("full", "truncated")


def test_a_tool_that_waited_for_a_person_ran_once() -> None:
    """LangGraph leaves such a tool by an exception, and runs it again when it is resumed."""
    capture = load(DATA / "openinference_langchain/interrupt.truth.json")
    asked = [one for one in derive(capture.spans, capture.logs).tool_calls if one.name == "approve"]
    (tool,) = asked
    assert (tool.arguments, tool.result) == ({"what": "hotel"}, "approved: yes")
    assert (tool.error_type, tool.llm_span_id is None) == (None, False)


def test_what_ag2_cut_from_the_result_of_a_tool_makes_the_call_truncated() -> None:
    capture = load(DATA / "ag2/long.truth.json")
    derived = derive(capture.spans, capture.logs)
    (call,) = [one for one in derived.llm_calls if one.content == "truncated"]
    (tool,) = [one for one in derived.tool_calls if one.name == "long_get_weather"]
    (whole,) = [
        one["result"] for one in capture.truth["tool_executions"] if one["name"] == tool.name
    ]
    (result,) = [
        part["response"]
        for message in call.input_messages or ()
        for part in message["parts"]
        if part["type"] == "tool_call_response"
    ]
    assert result == tool.result
    assert whole.startswith(result)
    assert len(whole) > len(result) > 1_000


def test_qwen_codes_reasoning_is_counted_and_its_tool_failed() -> None:
    capture = load(DATA / "qwen_code/tasks.truth.json")
    derived = derive(capture.spans, capture.logs)
    assert [call.reasoning_tokens for call in derived.llm_calls] == [4, 4]
    (tool,) = derived.tool_calls
    assert tool.result.startswith("Command: ")
    assert tool.error_type == "tool_error"
