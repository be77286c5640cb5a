"""LangGraph: a prebuilt agent with tools, in a row sync and at once async."""

import asyncio

from desk import AT_ONCE, IN_A_ROW, rain, sun
from langchain_openai import ChatOpenAI
from langgraph.prebuilt import ToolNode, create_react_agent

tools = ToolNode([sun, rain], handle_tool_errors=True)
agent = create_react_agent(ChatOpenAI(model="m"), tools, prompt="Answer about the weather.")


def work(turns):
    messages = []
    for turn in turns:
        messages = agent.invoke({"messages": [*messages, ("user", turn)]})["messages"]


async def work_async(turns):
    messages = []
    for turn in turns:
        messages = (await agent.ainvoke({"messages": [*messages, ("user", turn)]}))["messages"]


async def at_once():
    await asyncio.gather(*(work_async(turns) for turns in AT_ONCE))


for turns in IN_A_ROW:
    try:
        work(turns)
    except Exception as error:
        print(repr(error))
asyncio.run(at_once())
