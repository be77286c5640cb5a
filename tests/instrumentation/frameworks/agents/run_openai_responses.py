"""Plain openai, Responses: in a row the provider holds the history; at once it is streamed."""

import asyncio

import openai
from desk import AT_ONCE, IN_A_ROW, PARAMETERS, run

TOOLS = [
    {"type": "function", "name": name, "parameters": PARAMETERS, "strict": False}
    for name in ("sun", "rain")
]


def results(answer):
    """Run what the model asked for."""
    return [
        {
            "type": "function_call_output",
            "call_id": item.call_id,
            "output": run(item.name, item.arguments),
        }
        for item in answer.output
        if item.type == "function_call"
    ]


def work(client, turns):
    previous = openai.omit
    for turn in turns:
        sent = [{"role": "user", "content": turn}]
        while sent:
            answer = client.responses.create(
                model="m", input=sent, tools=TOOLS, previous_response_id=previous
            )
            previous, sent = answer.id, results(answer)


async def work_streamed(client, turns):
    history = []
    for turn in turns:
        sent = [{"role": "user", "content": turn}]
        while sent:
            history += sent
            stream = await client.responses.create(
                model="m", input=history, tools=TOOLS, stream=True, store=False
            )
            async for event in stream:
                if event.type == "response.completed":
                    answer = event.response
            history += answer.output
            sent = results(answer)


async def at_once():
    async with openai.AsyncOpenAI() as client:
        await asyncio.gather(*(work_streamed(client, turns) for turns in AT_ONCE))


for turns in IN_A_ROW:
    try:
        work(openai.OpenAI(), turns)
    except openai.BadRequestError as error:
        print(error)
asyncio.run(at_once())
