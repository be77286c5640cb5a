"""Traceloop's package for LangChain in JavaScript, which writes the texts of answers and no more.

An answer of blocks, such as one of Anthropic's with tool calls, becomes an empty text. In the input
of the next call its blocks are JSON, from which those of the Responses API that call tools are
missing.
"""

from otel_lightning.collector.derive.messages.message_memory import MessageMemory
from otel_lightning.collector.derive.rows import LlmCall

SCOPE = "@traceloop/instrumentation-langchain"
NO_BLOCKS = [{"type": "text", "content": "[]"}]
"""The parts of a turn whose blocks were all left out."""


def settle(call: LlmCall, memory: MessageMemory | None) -> bool:
    """Make an empty answer unknown, and empty the turns in which nothing is left.

    Args:
        call: The call; changed in place.
        memory: The messages that are shared with other calls.

    Returns:
        Whether the answer may lack tool calls: only its finish reason tells that it has none.
    """
    sent = call.input_messages or []
    # A message may be shared with other calls, so it is replaced and not changed.
    keep = memory.one_copy if memory else dict
    for at, message in enumerate(sent):
        if message["role"] == "assistant" and message["parts"] == NO_BLOCKS:
            sent[at] = keep({**message, "parts": []})
    call.lost_answers = True
    if not any(message["parts"] for message in call.output_messages or ()):
        reasons = (message.get("finish_reason") for message in call.output_messages or ())
        call.finish_reason = call.finish_reason or next(filter(None, reasons), None)
        call.output_messages = None
    return call.error_type is None and call.finish_reason is None
