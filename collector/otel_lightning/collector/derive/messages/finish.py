"""The finish reasons of all providers and packages, in the words of `llm_calls`."""

import re
from functools import lru_cache

REASONS = {
    **dict.fromkeys(("stop", "end_turn", "completed", "complete", "stop_sequence"), "stop"),
    # Titan's, Hugging Face's and Together's, Llama's.
    **dict.fromkeys(("finish", "finished", "eos_token", "eos", "end_of_turn"), "stop"),
    **dict.fromkeys(("tool_calls", "tool_call", "tool_use"), "tool_calls"),
    # The second is LangChain4j's.
    **dict.fromkeys(("function_calls", "tool_execution", "function_call"), "tool_calls"),
    **dict.fromkeys(("length", "max_tokens", "max_output_tokens", "model_length"), "length"),
    **dict.fromkeys(("out_of_tokens", "model_context_window_exceeded"), "length"),
    **dict.fromkeys(("max_len", "max_context"), "length"),  # xAI's
    # The status of a response that was cut off, where its reason is left out.
    "incomplete": "length",
    **dict.fromkeys(
        ("content_filter", "safety", "refusal", "guardrail_intervened"), "content_filter"
    ),
    **dict.fromkeys(("content_filtered", "prohibited_content", "blocklist"), "content_filter"),
    **dict.fromkeys(("image_safety", "spii", "recitation"), "content_filter"),
    **dict.fromkeys(("error", "failed"), "error"),
}


def reason(raw: object) -> str | None:
    """Return the canonical finish reason, or None if it is unknown.

    Example:
        >>> reason("FinishReason.TOOL_CALLS"), reason("endTurn"), reason("REASON_STOP"), reason("")
        ('tool_calls', 'stop', 'stop', None)
    """
    return _reason(str(raw)) if raw else None


@lru_cache(maxsize=256)
def _reason(raw: str) -> str | None:
    # Semantic Kernel writes the name of an enum, `FinishReason.TOOL_CALLS`, Vercel's SDK hyphens,
    # `tool-calls`, Strands for TypeScript capitals, `toolUse`, and xAI's the names of protobuf,
    # `REASON_STOP`.
    spelled = _NEXT_WORD.sub("_", raw.rpartition(".")[2].replace("-", "_")).lower()
    return REASONS.get(spelled.removeprefix("finish_").removeprefix("reason_"))


_NEXT_WORD = re.compile("(?<=[a-z])(?=[A-Z])")
"""The place between two words of a name such as `toolUse`."""
