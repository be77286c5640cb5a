"""CrewAI: a crew of one agent with tools for each task; turns are the crew's tasks."""

import asyncio

from crewai import LLM, Agent, Crew, Task
from crewai.tools import tool
from desk import AT_ONCE, IN_A_ROW
from desk import rain as fall
from desk import sun as shine


@tool("sun")
def sun(city: str) -> str:
    """Return whether the sun shines in a city."""
    return shine(city)


@tool("rain")
def rain(city: str) -> str:
    """Return whether it rains in a city."""
    return fall(city)


def crew(turns):
    agent = Agent(
        role="desk",
        goal="answer",
        backstory="none",
        tools=[sun, rain],
        llm=LLM(model="openai/gpt-4o-mini"),
    )
    tasks = [Task(description=turn, expected_output="a word", agent=agent) for turn in turns]
    return Crew(agents=[agent], tasks=tasks)


async def at_once():
    await asyncio.gather(*(crew(turns).kickoff_async() for turns in AT_ONCE))


for turns in IN_A_ROW:
    try:
        crew(turns).kickoff()
    except Exception as error:
        print(repr(error))
asyncio.run(at_once())
