"""Plain openai: chat completions, each task streamed and not."""

import json

import openai
from tool_log import TASKS, sun

TOOLS = [{"type": "function", "function": {"name": "sun", "parameters": {}}}]
client = openai.OpenAI()
for task in TASKS:
    messages = [{"role": "user", "content": task}]
    while True:
        answer = client.chat.completions.create(model="m", messages=messages, tools=TOOLS)
        message = answer.choices[0].message
        if not message.tool_calls:
            break
        messages.append(message)
        for call in message.tool_calls:
            result = sun(**json.loads(call.function.arguments))
            messages.append({"role": "tool", "tool_call_id": call.id, "content": result})
