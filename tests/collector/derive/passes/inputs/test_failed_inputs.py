"""Messages of a failed call that only the run of its agent states."""

from support.spans import span, text_message

from otel_lightning.collector.derive.assemble import derive

QUESTION = text_message("user", "Is it sunny in Rome?")


def test_the_only_call_of_a_run_that_failed_has_the_messages_of_the_run() -> None:
    asked = {
        "gen_ai.operation.name": "invoke_agent",
        "pydantic_ai.all_messages": [QUESTION],
        "gen_ai.system_instructions": [{"type": "text", "content": "Be short."}],
    }
    run = span(asked, id="run", ends=9, status="ERROR")
    keys = {"gen_ai.operation.name": "chat", "gen_ai.request.model": "m"}
    failed = span(keys, id="failed", parent="run", at=4, status="ERROR")
    (call,) = derive([run, failed], []).llm_calls
    assert [message["role"] for message in call.input_messages or ()] == ["system", "user"]
    assert call.content == "full"
    # The messages of the run may lack what came after the first of its calls.
    first = span({**keys, "gen_ai.response.id": "r1"}, id="first", parent="run", at=1)
    assert not derive([run, first, failed], []).llm_calls[1].input_messages
