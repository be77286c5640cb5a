"""Plain openai, chat completions: in a row with the sync client, at once with the async one."""

import asyncio

import openai
from desk import AT_ONCE, IN_A_ROW, PARAMETERS, run

TOOLS = [
    {"type": "function", "function": {"name": name, "parameters": PARAMETERS}}
    for name in ("sun", "rain")
]


def use_tools(message, messages):
    """Run what the model asked for; tell whether it asked for anything."""
    messages.append(message)
    for call in message.tool_calls or ():
        result = run(call.function.name, call.function.arguments)
        messages.append({"role": "tool", "tool_call_id": call.id, "content": result})
    return bool(message.tool_calls)


def work(client, turns):
    messages = [{"role": "system", "content": "Answer about the weather."}]
    for turn in turns:
        messages.append({"role": "user", "content": turn})
        asked = True
        while asked:
            answer = client.chat.completions.create(model="m", messages=messages, tools=TOOLS)
            asked = use_tools(answer.choices[0].message, messages)


async def work_async(client, turns):
    messages = [{"role": "system", "content": "Answer about the weather."}]
    for turn in turns:
        messages.append({"role": "user", "content": turn})
        asked = True
        while asked:
            answer = await client.chat.completions.create(model="m", messages=messages, tools=TOOLS)
            asked = use_tools(answer.choices[0].message, messages)


async def at_once():
    async with openai.AsyncOpenAI() as client:
        await asyncio.gather(*(work_async(client, turns) for turns in AT_ONCE))


for turns in IN_A_ROW:
    try:
        work(openai.OpenAI(), turns)
    except openai.BadRequestError as error:
        print(error)
asyncio.run(at_once())
