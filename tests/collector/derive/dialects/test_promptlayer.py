"""PromptLayer's dialect."""

from support.spans import span, text_message

from otel_lightning.collector.derive.assemble import derive

STEP = {"promptlayer.telemetry.source": "openai-agents-js"}
QUESTION = {"gen_ai.prompt.0.role": "user", "gen_ai.prompt.0.content": "Hi"}


def test_a_response_without_its_json_may_lack_its_instructions() -> None:
    answered = {"gen_ai.completion.0.role": "assistant", "gen_ai.completion.0.content": "Hello"}
    step = STEP | {"openai_agents.span_type": "response"} | QUESTION | answered
    (call,) = derive([span(step)], []).llm_calls
    assert (call.dialect, call.content) == ("promptlayer", "truncated")
    assert call.input_messages == [text_message("user", "Hi")]


def test_the_instructions_of_a_response_come_first() -> None:
    message = {"type": "message", "content": [{"type": "output_text", "text": "Hello"}]}
    response = {"instructions": "Be kind.", "output": [message], "status": "completed"}
    keys = {"openai_agents.span_type": "response", "openai_agents.response.raw_json": response}
    (call,) = derive([span(STEP | QUESTION | keys)], []).llm_calls
    assert call.input_messages == [text_message("system", "Be kind."), text_message("user", "Hi")]
    assert (call.content, call.finish_reason) == ("full", "stop")


def test_a_step_that_only_groups_others_has_no_row() -> None:
    rows = derive([span(STEP | {"openai_agents.span_type": "turn"})], [])
    assert not rows.llm_calls
    assert not rows.tool_calls
