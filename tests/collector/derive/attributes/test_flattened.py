"""Values that were flattened into attributes, as the SDK's limit on their number leaves them."""

import pytest
from opentelemetry.attributes import BoundedAttributes
from support.spans import read_call, span

PREFIX = {"openinference": "llm.input_messages.{}.message.", "indexed": "gen_ai.prompt.{}."}
LIMIT = 128
"""The number of attributes that OpenTelemetry's SDK for Python keeps of a span by default."""


def kept(dialect: str, messages: int) -> dict[str, str]:
    """Return what the SDK keeps of a call with so many messages before the last question."""
    attributes = BoundedAttributes(LIMIT, immutable=False)
    attributes["input.value"] = "{}"
    for n in range(messages):
        begin = PREFIX[dialect].format(n)
        attributes[f"{begin}role"] = ("user", "assistant")[n % 2]
        attributes[f"{begin}content"] = f"line {n}"
    answer = PREFIX[dialect].format(0).replace("input", "output").replace("prompt", "completion")
    attributes.update({f"{answer}role": "assistant", f"{answer}content": "Hello"})
    attributes.update({"llm.model_name": "m", "llm.request.type": "chat"})
    if dialect == "openinference":
        attributes["openinference.span.kind"] = "LLM"
    return {key: str(value) for key, value in attributes.items()}


@pytest.mark.parametrize("dialect", PREFIX)
@pytest.mark.parametrize(("messages", "content"), [(5, "full"), (61, "full"), (64, "truncated")])
def test_a_history_whose_beginning_the_sdk_dropped_is_truncated(
    dialect: str, messages: int, content: str
) -> None:
    """The SDK drops the oldest attributes: first of all the whole request in `input.value`."""
    call = read_call(span(kept(dialect, messages)))
    assert (call.dialect, call.content) == (dialect, content)
    texts = [one["parts"][0]["content"] for one in call.input_messages or ()]
    assert texts == [f"line {n}" for n in range(messages)][-len(texts) :]
    assert (len(texts) == messages) == (content == "full")


@pytest.mark.parametrize("dialect", PREFIX)
def test_a_first_message_without_its_role_lost_its_beginning(dialect: str) -> None:
    given = kept(dialect, 5)
    given.pop(PREFIX[dialect].format(0) + "role")
    assert read_call(span(given)).content == "truncated"
