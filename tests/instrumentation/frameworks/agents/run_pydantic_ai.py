"""Pydantic AI: an agent with tools, in a row sync and at once async."""

import asyncio

from desk import AT_ONCE, IN_A_ROW, rain, sun
from pydantic_ai import Agent
from pydantic_ai.models.openai import OpenAIChatModel

agent = Agent(OpenAIChatModel("m"), name="desk", instructions="Answer about the weather.")
agent.tool_plain(sun)
agent.tool_plain(rain)


def work(turns):
    history = []
    for turn in turns:
        history = agent.run_sync(turn, message_history=history).all_messages()


async def work_async(turns):
    history = []
    for turn in turns:
        history = (await agent.run(turn, message_history=history)).all_messages()


async def at_once():
    await asyncio.gather(*(work_async(turns) for turns in AT_ONCE))


for turns in IN_A_ROW:
    try:
        work(turns)
    except Exception as error:
        print(repr(error))
asyncio.run(at_once())
