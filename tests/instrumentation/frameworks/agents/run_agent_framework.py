"""Microsoft Agent Framework on Responses: an agent with tools, a session for each task."""

import maf
from agent_framework.openai import OpenAIChatClient

maf.start(OpenAIChatClient(model="m"))
