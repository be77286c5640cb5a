"""An agent that calls the service of `hop_service.py` by two HTTP clients, in two rollouts."""

import asyncio
import sys

import httpx
import requests

from otel_lightning.instrumentation import rollout

url = sys.argv[1]
with rollout(task_id="task-1", rollout_id="run-1"):
    requests.get(url, {"q": "by requests"}, timeout=60).raise_for_status()
    httpx.get(url, params={"q": "by httpx"}, timeout=60).raise_for_status()


async def ask() -> None:
    """Call the service from asyncio."""
    async with httpx.AsyncClient(timeout=60) as client:
        with rollout(task_id="task-2", rollout_id="run-2"):
            (await client.get(url, params={"q": "by asyncio"})).raise_for_status()


asyncio.run(ask())
