"""Results that LangChain serialised, which several tracers record as they are.

This is no dialect: the dialects `langsmith`, `mlflow` and `openinference` read their spans with it.
"""

from collections.abc import Mapping
from typing import Any

from otel_lightning.collector.derive.messages import finish, messages, token_counts
from otel_lightning.collector.derive.rows import LlmCall, Message
from otel_lightning.collector.derive.text import json_text

CHUNK = "ChatGenerationChunk"
"""The type of a choice that was put together from the chunks of a stream."""
RUNS = ("run-", "lc_run-")
"""Prefixes of the ids that LangChain makes up. Any other id comes from the provider."""


def metadata(result: Any) -> Mapping[str, Any]:
    """Return the response metadata in a result that LangChain serialised; {} if there is none."""
    return next(map(_metadata, _generations(result)), {})


def fill(call: LlmCall, result: Any) -> None:
    """Set the unknown fields that a result's metadata has: usage, finish reason, id and model."""
    fields = metadata(result)
    token_counts.fill_usage(call, token_counts.usage(fields.get("usage_metadata")))
    call.finish_reason = call.finish_reason or finish.reason(fields.get("finish_reason"))
    call.response_id = call.response_id or fields.get("id") or _id_of_all(result)
    call.response_model = call.response_model or fields.get("model_name")


def _id_of_all(result: Any) -> str | None:
    """Return the response id that stands beside several choices."""
    whole = result if isinstance(result, dict) else {}
    name = json_text.object_under(whole, "llm_output", "llmOutput").get("id")
    return name if isinstance(name, str) and not name.startswith(RUNS) else None


def is_broken_off(result: Any) -> bool:
    """Return whether a result was put together from a stream in which no choice ended."""
    generations = _generations(result)
    are_chunks = any(one.get("type") == CHUNK for one in generations)
    return are_chunks and not any(_metadata(one).get("finish_reason") for one in generations)


def choices(result: Any) -> list[Message]:
    """Return the output messages in a result that LangChain serialised, one per choice."""
    return [
        messages.choice(turn["parts"], _metadata(generation).get("finish_reason"))
        for generation in _generations(result)
        for turn in messages.one_turn([generation.get("message")])
    ]


def _generations(result: Any) -> list[Mapping[str, Any]]:
    """Return the choices of the first prompt of a batch, because a span records one prompt."""
    batch = result.get("generations") if isinstance(result, dict) else None
    first = batch[0] if isinstance(batch, list) and batch else None
    return [one for one in first if isinstance(one, dict)] if isinstance(first, list) else []


def _metadata(generation: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return a choice's response metadata, merged from the places where LangChain writes it.

    The places differ between Python and JavaScript. An id that LangChain made up becomes None.
    """
    message = json_text.object_under(generation, "message")
    message = json_text.object_under(message, "kwargs") or message
    found = {**json_text.object_under(generation, "generation_info", "generationInfo"), **message}
    found |= {
        **json_text.object_under(message, "additional_kwargs"),
        **json_text.object_under(message, "response_metadata"),
    }
    # Anthropic's names of these two fields, and those of the Responses API.
    found.setdefault("model_name", found.get("model"))
    cut = json_text.object_under(found, "incomplete_details").get("reason")
    found.setdefault("finish_reason", found.get("stop_reason") or cut or found.get("status"))
    return {**found, "id": None} if str(found.get("id")).startswith(RUNS) else found
