"""What the provider's model says: decided by the conversation alone, so that no run differs.

Messages here have the form of a truth file: `role`, `content`, `tool_calls`, `tool_call_id`.
"""

import json
import re
import uuid
from typing import Any, NamedTuple

Message = dict[str, Any]

TASK_OF = {
    "Oslo": "Oslo",
    "Bergen": "Oslo",
    "Rome": "Rome",
    "Ostia": "Rome",
    "Atlantis": "Atlantis",
    "Nowhere": "Nowhere",
    "Lima": "Lima",
    "Cusco": "Lima",
    "Cairo": "Cairo",
    "Quito": "Quito",
}
"""The task that names each city: `agents/tasks.json` has the texts."""
CITY = re.compile(rf"\b({'|'.join(TASK_OF)})\b")
RANKING = "DocumentRelevanceList"
"""The tool by which LlamaIndex asks which documents are relevant."""
DOCUMENT = re.compile(r"^Document (\d+):$", re.MULTILINE)
"""The heading of a document in its question."""
REFUSED = "Nowhere"
"""The city for which the provider answers 400."""


class Answer(NamedTuple):
    """One answer of the model: words, or requests for tools."""

    text: str | None
    tool_calls: list[dict[str, str]]


def task_of(messages: list[Message]) -> str | None:
    """Return the task that a conversation is about: that of the first city a user names."""
    for message in messages:
        match = CITY.search(message["content"] or "") if message["role"] == "user" else None
        if match:
            return TASK_OF[match[0]]
    return None


def answer(messages: list[Message], tools: list[str]) -> Answer:
    """Ask about the cities of the last user message, one after the other, then tell the results.

    Args:
        messages: The conversation so far.
        tools: Names of the tools that are offered.
    """
    if RANKING in tools:
        return Answer(None, [_ranking(messages[-1]["content"] or "")])
    question, since = _last_user_message(messages)
    cities = list(dict.fromkeys(CITY.findall(question)))
    rounds = sum(1 for message in since if message.get("tool_calls"))
    if tools and rounds < len(cities):
        return Answer(None, _requests(cities[rounds], question, tools))
    results = [message["content"] for message in since if message["role"] == "tool"]
    return Answer(f"Found for {', '.join(cities)}: {'; '.join(results) or 'nothing'}.", [])


def _last_user_message(messages: list[Message]) -> tuple[str, list[Message]]:
    for index in reversed(range(len(messages))):
        content = messages[index]["content"] or ""
        if messages[index]["role"] == "user" and CITY.search(content):
            return content, messages[index + 1 :]
    return "", messages


def _ranking(question: str) -> dict[str, str]:
    """Call the last document the most relevant one, so that the order changes."""
    ranked = [
        {"document_number": int(number), "relevance": 10 - place}
        for place, number in enumerate(reversed(DOCUMENT.findall(question)))
    ]
    arguments = json.dumps({"documents": ranked})
    return {"id": f"call_{uuid.uuid4().hex[:24]}", "name": RANKING, "arguments": arguments}


def _requests(city: str, question: str, tools: list[str]) -> list[dict[str, str]]:
    weather = [name for name in ("sun", "rain") if name in tools]
    names = weather if "rain" in question else weather[:1]
    arguments = json.dumps({"city": city})
    return [
        {"id": f"call_{uuid.uuid4().hex[:24]}", "name": name, "arguments": arguments}
        for name in names or tools[:1]
    ]
