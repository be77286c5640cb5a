"""OpenAI Agents SDK: an agent with a tool, on Responses."""

import asyncio

from agents import Agent, Runner, function_tool
from tool_log import TASKS, sun

agent = Agent(name="desk", model="m", tools=[function_tool(sun)])


async def main() -> None:
    for task in TASKS:
        await Runner.run(agent, task)


asyncio.run(main())
