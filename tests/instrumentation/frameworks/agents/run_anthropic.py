"""Plain anthropic: in a row with the sync client, at once with the async one, streamed."""

import asyncio
import json

import anthropic
from desk import AT_ONCE, IN_A_ROW, PARAMETERS, run

TOOLS = [
    {"name": name, "description": f"Tell about {name} in a city.", "input_schema": PARAMETERS}
    for name in ("sun", "rain")
]
ASKED = {"model": "m", "max_tokens": 100, "tools": TOOLS, "system": "Answer about the weather."}


def use_tools(answer, messages):
    """Run what the model asked for; tell whether it asked for anything."""
    messages.append({"role": "assistant", "content": answer.content})
    results = [
        {
            "type": "tool_result",
            "tool_use_id": block.id,
            "content": run(block.name, json.dumps(block.input)),
        }
        for block in answer.content
        if block.type == "tool_use"
    ]
    if results:
        messages.append({"role": "user", "content": results})
    return bool(results)


def work(client, turns):
    messages = []
    for turn in turns:
        messages.append({"role": "user", "content": turn})
        while use_tools(client.messages.create(messages=messages, **ASKED), messages):
            pass


async def work_streamed(client, turns):
    messages = []
    for turn in turns:
        messages.append({"role": "user", "content": turn})
        asked = True
        while asked:
            async with client.messages.stream(messages=messages, **ASKED) as stream:
                answer = await stream.get_final_message()
            asked = use_tools(answer, messages)


async def at_once():
    async with anthropic.AsyncAnthropic() as client:
        await asyncio.gather(*(work_streamed(client, turns) for turns in AT_ONCE))


for turns in IN_A_ROW:
    try:
        work(anthropic.Anthropic(), turns)
    except anthropic.BadRequestError as error:
        print(error)
asyncio.run(at_once())
