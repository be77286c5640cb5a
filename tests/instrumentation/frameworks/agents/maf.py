"""Microsoft Agent Framework: what both of its clients' agents do."""

import asyncio

from agent_framework import Agent
from desk import AT_ONCE, IN_A_ROW, rain, sun


async def work(agent, turns):
    session = agent.create_session()
    for turn in turns:
        await agent.run(turn, session=session)


async def main(client):
    agent = Agent(
        client=client, name="desk", instructions="Answer about the weather.", tools=[sun, rain]
    )
    for turns in IN_A_ROW:
        try:
            await work(agent, turns)
        except Exception as error:
            print(repr(error))
    await asyncio.gather(*(work(agent, turns) for turns in AT_ONCE))


def start(client):
    asyncio.run(main(client))
