"""Pydantic AI: an agent with a tool."""

from pydantic_ai import Agent
from pydantic_ai.models.openai import OpenAIChatModel
from tool_log import TASKS, sun

agent = Agent(OpenAIChatModel("m"), tools=[sun])
for task in TASKS:
    agent.run_sync(task)
