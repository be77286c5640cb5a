"""Plain openai, async, all tasks at once: Responses, with the history held by the provider."""

import asyncio
import json

import openai
from tool_log import TASKS, sun

TOOLS = [{"type": "function", "name": "sun", "parameters": {}, "strict": False}]


async def work(client, task) -> None:
    sent, previous = [{"role": "user", "content": task}], openai.omit
    while sent:
        answer = await client.responses.create(
            model="m", input=sent, tools=TOOLS, previous_response_id=previous
        )
        previous = answer.id
        sent = [
            {
                "type": "function_call_output",
                "call_id": item.call_id,
                "output": sun(**json.loads(item.arguments)),
            }
            for item in answer.output
            if item.type == "function_call"
        ]


async def main() -> None:
    async with openai.AsyncOpenAI() as client:
        await asyncio.gather(*(work(client, task) for task in TASKS))


asyncio.run(main())
