"""The OpenAI Agents SDK's dialect."""

from support.spans import span

from otel_lightning.collector.derive.assemble import derive
from otel_lightning.collector.derive.rows import Span


def test_responses_whose_id_the_openai_agents_sdk_made_up_are_several_calls() -> None:
    """Logfire records them, for a chat model that streams, with the provider's id inside."""

    def streamed(number: int) -> Span:
        item: dict[str, object] = {"type": "message", "role": "assistant", "content": "Yes."}
        item["provider_data"] = {"response_id": f"chatcmpl-{number}"}
        response = {"id": "__fake_id__", "object": "response", "model": "m", "output": [item]}
        sent = [{"role": "user", "content": f"Question {number}?"}]
        keys = {"gen_ai.system": "openai", "gen_ai.request.model": "m"}
        told = {**keys, "input": sent, "output": [response]}
        return span(told, id=f"s{number}", parent="agent", at=number)

    calls = derive([streamed(1), streamed(2)], []).llm_calls
    assert [call.response_id for call in calls] == ["chatcmpl-1", "chatcmpl-2"]
