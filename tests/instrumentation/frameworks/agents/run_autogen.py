"""AutoGen: an assistant with a tool that reflects on its result."""

import asyncio

from autogen_agentchat.agents import AssistantAgent
from autogen_ext.models.openai import OpenAIChatCompletionClient
from tool_log import TASKS, sun

INFO = {
    "vision": False,
    "function_calling": True,
    "json_output": False,
    "family": "unknown",
    "structured_output": False,
}


async def main() -> None:
    for task in TASKS:
        client = OpenAIChatCompletionClient(model="m", model_info=INFO)
        agent = AssistantAgent("desk", client, tools=[sun], reflect_on_tool_use=True)
        await agent.run(task=task)
        await client.close()


asyncio.run(main())
