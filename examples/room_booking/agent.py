"""Book meeting rooms with the bare OpenAI client: one model call reads the request.

Its system prompt is a feature flag. FLAGD_OFFLINE_FLAG_SOURCE_PATH names the flag file; without it
the prompt is the one below. OPENAI_BASE_URL and OPENAI_API_KEY say where the model is,
OPENAI_MODEL which one to ask for.

    echo '{"request": "A room for 8 people; Ann uses a wheelchair."}' | python agent.py
"""

import json
import os
import sys
from collections.abc import Mapping
from functools import cache
from typing import Any

from openai import OpenAI
from openfeature import api
from openfeature.client import OpenFeatureClient
from openfeature.contrib.provider.flagd import FlagdProvider
from openfeature.contrib.provider.flagd.config import ResolverType
from rooms import best_room

FLAG = "booking-prompt"
PROMPT = "You book meeting rooms."
TOOL: Any = {
    "type": "function",
    "function": {
        "name": "book",
        "description": "Book the smallest free room that has what is needed.",
        "parameters": {
            "type": "object",
            "properties": {"seats": {"type": "integer"}, "needs": {"type": "string"}},
        },
    },
}


@cache
def client() -> OpenAI:
    """Return the client of the model."""
    return OpenAI()


@cache
def flags() -> OpenFeatureClient:
    """Return the client of the flags, from the flag file if there is one."""
    if path := os.environ.get("FLAGD_OFFLINE_FLAG_SOURCE_PATH"):
        provider = FlagdProvider(resolver_type=ResolverType.FILE, offline_flag_source_path=path)
        api.set_provider_and_wait(provider)
    return api.get_client()


def answer(task: Mapping[str, Any]) -> str:
    """Book a room for one request; its name is the answer."""
    response = client().chat.completions.create(
        model=os.environ.get("OPENAI_MODEL", "gpt-4o-mini"),
        messages=[
            {"role": "system", "content": flags().get_string_value(FLAG, PROMPT)},
            {"role": "user", "content": task["request"]},
        ],
        tools=[TOOL],
        max_tokens=60,
    )
    calls: Any = response.choices[0].message.tool_calls
    return booked(calls[0].function.arguments) if calls else "none"


def booked(arguments: str) -> str:
    """Book the room that a call of the tool asks for."""
    try:
        asked = json.loads(arguments)
        return best_room(int(asked.get("seats", 0)), set(str(asked.get("needs", "")).split()))
    except (ValueError, TypeError, AttributeError):
        return "none"


if __name__ == "__main__":
    print(answer(json.load(sys.stdin)))
