"""AutoGen: an assistant with tools for each task, which is asked again for each turn."""

import asyncio

from autogen_agentchat.agents import AssistantAgent
from autogen_ext.models.openai import OpenAIChatCompletionClient
from desk import AT_ONCE, IN_A_ROW, rain, sun

INFO = {
    "vision": False,
    "function_calling": True,
    "json_output": False,
    "family": "unknown",
    "structured_output": False,
}


async def work(turns):
    client = OpenAIChatCompletionClient(model="m", model_info=INFO)
    agent = AssistantAgent(
        "desk", client, tools=[sun, rain], max_tool_iterations=5, reflect_on_tool_use=False
    )
    for turn in turns:
        await agent.run(task=turn)
    await client.close()


async def main():
    for turns in IN_A_ROW:
        try:
            await work(turns)
        except Exception as error:
            print(repr(error))
    await asyncio.gather(*(work(turns) for turns in AT_ONCE))


asyncio.run(main())
