"""Microsoft Agent Framework: an agent with a tool, on Responses."""

import asyncio

from agent_framework import Agent
from agent_framework.openai import OpenAIChatClient
from tool_log import TASKS, sun


async def main() -> None:
    agent = Agent(client=OpenAIChatClient(model="m"), name="desk", tools=[sun])
    for task in TASKS:
        await agent.run(task)


asyncio.run(main())
