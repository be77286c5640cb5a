"""Plain openai, streamed: in a row with the sync client, at once with the async one."""

import asyncio

import openai
from desk import AT_ONCE, IN_A_ROW, PARAMETERS, run

TOOLS = [
    {"type": "function", "function": {"name": name, "parameters": PARAMETERS}}
    for name in ("sun", "rain")
]
ASKED = {"model": "m", "tools": TOOLS, "stream": True}


class Said:
    """What the chunks of one answer say together."""

    def __init__(self):
        self.text, self.calls = "", {}

    def add(self, chunk):
        delta = chunk.choices[0].delta if chunk.choices else None
        self.text += (delta and delta.content) or ""
        for part in (delta and delta.tool_calls) or ():
            call = self.calls.setdefault(part.index, {"id": "", "name": "", "arguments": ""})
            call["id"] += part.id or ""
            call["name"] += part.function.name or ""
            call["arguments"] += part.function.arguments or ""

    def use_tools(self, messages):
        asked = [
            {
                "id": call["id"],
                "type": "function",
                "function": {"name": call["name"], "arguments": call["arguments"]},
            }
            for call in self.calls.values()
        ]
        message = {"role": "assistant", "content": self.text or None}
        messages.append(message | ({"tool_calls": asked} if asked else {}))
        for call in self.calls.values():
            result = run(call["name"], call["arguments"])
            messages.append({"role": "tool", "tool_call_id": call["id"], "content": result})
        return bool(asked)


def work(client, turns):
    messages = []
    for turn in turns:
        messages.append({"role": "user", "content": turn})
        asked = True
        while asked:
            said = Said()
            for chunk in client.chat.completions.create(messages=messages, **ASKED):
                said.add(chunk)
            asked = said.use_tools(messages)


async def work_async(client, turns):
    messages = []
    for turn in turns:
        messages.append({"role": "user", "content": turn})
        asked = True
        while asked:
            said = Said()
            async for chunk in await client.chat.completions.create(messages=messages, **ASKED):
                said.add(chunk)
            asked = said.use_tools(messages)


async def at_once():
    async with openai.AsyncOpenAI() as client:
        await asyncio.gather(*(work_async(client, turns) for turns in AT_ONCE))


for turns in IN_A_ROW:
    try:
        work(openai.OpenAI(), turns)
    except openai.BadRequestError as error:
        print(error)
asyncio.run(at_once())
