"""Spans of MLflow's plugins for coding agents (Claude Code, OpenCode, Codex)."""

import json

from support.spans import span

from otel_lightning.collector.derive.assemble import derive


def test_a_tool_of_an_mlflow_plugin_has_its_name_id_and_bare_result() -> None:
    attributes = {
        "mlflow.spanType": json.dumps("TOOL"),
        "tool_name": json.dumps("bash"),
        "tool_id": json.dumps("call_1"),
        "mlflow.spanInputs": {"command": "ls"},
        "mlflow.spanOutputs": {"result": "a.txt"},
    }
    (tool,) = derive([span(attributes, name="tool_bash")], []).tool_calls
    assert (tool.name, tool.tool_call_id, tool.result) == ("bash", "call_1", "a.txt")
    assert tool.arguments == {"command": "ls"}


def test_a_tool_of_a_users_own_keeps_an_object_with_a_result() -> None:
    attributes = {"mlflow.spanType": json.dumps("TOOL"), "mlflow.spanOutputs": {"result": 1}}
    (tool,) = derive([span(attributes, name="add")], []).tool_calls
    assert (tool.name, tool.result) == ("add", {"result": 1})


def test_an_answer_of_an_mlflow_plugin_may_be_a_message_without_its_reason() -> None:
    use = {"type": "tool_use", "id": "call_1", "name": "bash", "input": {"command": "ls"}}
    attributes = {
        "mlflow.spanType": json.dumps("LLM"),
        "mlflow.spanInputs": {"messages": [{"role": "user", "content": "Look"}]},
        "mlflow.spanOutputs": {
            "type": "message",
            "role": "assistant",
            "content": [{"type": "text", "text": "I look."}, use],
        },
    }
    (call,) = derive([span(attributes)], []).llm_calls
    (answer,) = call.output_messages or ()
    assert [part["type"] for part in answer["parts"]] == ["text", "tool_call"]
