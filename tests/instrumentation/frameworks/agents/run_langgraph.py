"""LangGraph: a prebuilt agent with a tool."""

from langchain_openai import ChatOpenAI
from langgraph.prebuilt import create_react_agent
from tool_log import TASKS, sun

agent = create_react_agent(ChatOpenAI(model="m"), [sun])
for task in TASKS:
    agent.invoke({"messages": [("user", task)]})
