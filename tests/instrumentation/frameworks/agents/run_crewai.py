"""CrewAI: a crew of one agent with a tool."""

from crewai import LLM, Agent, Crew, Task
from crewai.tools import tool
from tool_log import TASKS
from tool_log import sun as shine


@tool("sun")
def sun(city: str) -> str:
    """Tell whether the sun shines in a city."""
    return shine(city)


for city in TASKS:
    agent = Agent(
        role="desk",
        goal="answer",
        backstory="none",
        tools=[sun],
        llm=LLM(model="openai/gpt-4o-mini"),
    )
    task = Task(description=city, expected_output="a word", agent=agent)
    Crew(agents=[agent], tasks=[task]).kickoff()
