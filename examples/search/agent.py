"""Answer questions that need several searches, with the OpenAI Agents SDK.

OPENAI_BASE_URL and OPENAI_API_KEY say where the model is, OPENAI_MODEL which one to ask for.

    echo '{"corpus": "atlas.sqlite", "question": "Which river …?"}' | python agent.py
"""

import asyncio
import json
import os
import re
import sqlite3
import sys
from collections.abc import Mapping
from typing import Any

from agents import (
    Agent,
    ModelSettings,
    OpenAIChatCompletionsModel,
    RunContextWrapper,
    Runner,
    function_tool,
    set_tracing_disabled,
)
from openai import AsyncOpenAI

PROMPT = "You answer questions by searching. Search again if need be. Answer with one name."
FOUND = 1
MOST_TURNS = 5

set_tracing_disabled(disabled=True)


@function_tool
def search(context: RunContextWrapper[str], query: str) -> str:
    """Find the passage that fits a query best.

    Args:
        context: The corpus.
        query: A few words.
    """
    words = re.findall(r"\w+", query)
    asked = " OR ".join(f'"{word}"' for word in words) or '""'
    database = sqlite3.connect(f"file:{context.context}?mode=ro", uri=True)
    try:
        rows = database.execute(
            "SELECT text FROM passages WHERE passages MATCH ? ORDER BY rank LIMIT ?",
            (asked, FOUND),
        ).fetchall()
    finally:
        database.close()
    return "\n".join(text for (text,) in rows) or "nothing found"


async def answer(task: Mapping[str, Any]) -> str:
    """Answer one question."""
    name = os.environ.get("OPENAI_MODEL", "gpt-4o-mini")
    async with AsyncOpenAI() as client:
        agent = Agent[str](
            name="searcher",
            instructions=PROMPT,
            tools=[search],
            model=OpenAIChatCompletionsModel(name, client),
            model_settings=ModelSettings(max_tokens=60),
        )
        result = await Runner.run(
            agent, task["question"], context=task["corpus"], max_turns=MOST_TURNS
        )
    return str(result.final_output)


if __name__ == "__main__":
    print(asyncio.run(answer(json.load(sys.stdin))))
