"""Recordings whose rows are compared with the tasks that were run."""

import pytest
from support import trial_rows
from support.captures import load
from support.dialects_page import DATA
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


def test_qwen_codes_reasoning_is_counted_and_its_tool_failed() -> None:
    capture = load(DATA / "qwen_code/tasks.truth.json")
    derived = derive(capture.spans, capture.logs)
    assert [call.reasoning_tokens for call in derived.llm_calls] == [4, 4]
    (tool,) = derived.tool_calls
    assert tool.result.startswith("Command: ")
    assert tool.error_type == "tool_error"
