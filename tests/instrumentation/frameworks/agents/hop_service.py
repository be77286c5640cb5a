"""A service that asks a model for each request; the agent of `hop_agent.py` calls it."""

import socket

import openai
import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse
from starlette.routing import Route

client = openai.OpenAI()


def ask(request: Request) -> PlainTextResponse:
    """Ask the model what the query says."""
    messages = [{"role": "user", "content": request.query_params["q"]}]
    answer = client.chat.completions.create(model="small", messages=messages)
    return PlainTextResponse(answer.choices[0].message.content)


listening = socket.create_server(("127.0.0.1", 0))
print(listening.getsockname()[1], flush=True)
app = Starlette(routes=[Route("/ask", ask)])
uvicorn.Server(uvicorn.Config(app, log_level="warning")).run(sockets=[listening])
