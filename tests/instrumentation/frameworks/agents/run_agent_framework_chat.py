"""Microsoft Agent Framework on chat completions: an agent with tools, a session for each task."""

import maf
from agent_framework.openai import OpenAIChatCompletionClient

maf.start(OpenAIChatCompletionClient(model="m"))
