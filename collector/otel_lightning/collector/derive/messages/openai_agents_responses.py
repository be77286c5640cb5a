"""Responses that the OpenAI Agents SDK built itself, which several tracers record as they are.

With a chat completions model, the SDK builds a response of the Responses API from the streamed
answer, and makes up its id and model. This is no dialect: the dialects of tracers that record the
SDK's responses read them with it.
"""

from typing import Any

from otel_lightning.collector.derive.text import json_text

FAKE_ID = "__fake_id__"
"""The id that the SDK gives to every response that it builds. It identifies nothing."""


def without_made_up_id(response: Any) -> Any:
    """Return a response without the id and the model that the SDK made up.

    Args:
        response: A parsed response, a list with one, or any other value.

    Returns:
        The response with the provider's own id, if the SDK kept it, and no model. A value that is
        no response of the SDK is returned unchanged.
    """
    inner = response[0] if isinstance(response, list) and len(response) == 1 else response
    if not isinstance(inner, dict) or inner.get("id") != FAKE_ID:
        return response
    items = [item for item in inner.get("output") or () if isinstance(item, dict)]
    provider_data = json_text.object_under(items[0], "provider_data") if items else {}
    return {**inner, "id": provider_data.get("response_id"), "model": None}
