"""Pydantic AI: an agent whose one tool is another agent, which has the tools."""

import asyncio

from desk import AT_ONCE, IN_A_ROW, logged, rain, sun
from pydantic_ai import Agent
from pydantic_ai.models.openai import OpenAIChatModel

Agent.instrument_all()
expert = Agent(OpenAIChatModel("m"), name="expert", instructions="Look the weather up.")
expert.tool_plain(sun)
expert.tool_plain(rain)
desk = Agent(OpenAIChatModel("m"), name="desk", instructions="Ask the expert.")


@desk.tool_plain
async def ask_expert(city: str) -> str:
    """Ask the expert about a city."""
    with logged("ask_expert", city) as line:
        line["result"] = (await expert.run(f"How is the weather in {city}?")).output
        return line["result"]


async def work(turns):
    history = []
    for turn in turns:
        history = (await desk.run(turn, message_history=history)).all_messages()


async def main():
    for turns in IN_A_ROW:
        try:
            await work(turns)
        except Exception as error:
            print(repr(error))
    await asyncio.gather(*(work(turns) for turns in AT_ONCE))


asyncio.run(main())
