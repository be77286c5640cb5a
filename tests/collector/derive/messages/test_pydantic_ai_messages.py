"""Pydantic AI's own messages, as MLflow keeps them."""

from support.spans import QUESTION, only_call, span, text_message, tool_request, tool_response

from otel_lightning.collector.derive.messages import pydantic_ai_messages

PROMPT = {"part_kind": "user-prompt", "content": "Hi"}
CALL = {"part_kind": "tool-call", "tool_name": "add", "args": '{"a": 2}', "tool_call_id": "c1"}


def test_the_messages_of_a_run_are_those_that_the_model_got() -> None:
    asked = [{"part_kind": "system-prompt", "content": "Be brief."}, PROMPT]
    thought = {"part_kind": "thinking", "content": "I add."}
    again = {"part_kind": "retry-prompt", "tool_name": "add", "tool_call_id": "c1"}
    listed = [
        {"kind": "request", "parts": asked, "instructions": "Old."},
        {"kind": "response", "parts": [thought, CALL]},
        {
            "kind": "request",
            "parts": [{**again, "content": "b is missing"}],
            "instructions": "New.",
        },
    ]
    given = {"mlflow.spanType": '"LLM"', "mlflow.spanInputs": {"messages": listed}}
    call = only_call(span(given))
    system, brief, user, request, response = call.input_messages or []
    assert [system, brief] == [text_message("system", "New."), text_message("system", "Be brief.")]
    assert user == QUESTION
    assert request["parts"][0] == {"type": "reasoning", "content": "I add."}
    assert request["parts"][1]["id"] == tool_request("c1", "add", {})["parts"][0]["id"]
    assert response == tool_response("c1", f"b is missing{pydantic_ai_messages.AGAIN}")


def test_messages_of_others_are_left_alone() -> None:
    assert pydantic_ai_messages.request({"messages": [{"role": "user", "content": "Hi"}]}) is None
    assert pydantic_ai_messages.request({"messages": []}) is None
    assert pydantic_ai_messages.response({"kind": "request", "parts": [PROMPT]}) is None
    assert pydantic_ai_messages.response("Hi") is None
