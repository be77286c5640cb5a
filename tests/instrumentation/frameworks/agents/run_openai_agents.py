"""OpenAI Agents SDK on Responses: an agent with tools; the history is handed on by the agent."""

import asyncio

from agents import Agent, Runner, function_tool
from desk import AT_ONCE, IN_A_ROW, rain, sun

agent = Agent(
    name="desk",
    instructions="Answer about the weather.",
    model="m",
    tools=[function_tool(sun), function_tool(rain)],
)


async def work(turns):
    history = []
    for turn in turns:
        asked = [*history, {"role": "user", "content": turn}]
        history = (await Runner.run(agent, asked)).to_input_list()


async def main():
    for turns in IN_A_ROW:
        try:
            await work(turns)
        except Exception as error:
            print(repr(error))
    await asyncio.gather(*(work(turns) for turns in AT_ONCE))


asyncio.run(main())
