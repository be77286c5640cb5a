"""Solve word problems with AutoGen: an assistant that has a calculator.

OPENAI_BASE_URL and OPENAI_API_KEY say where the model is, OPENAI_MODEL which one to ask for.

    echo '{"question": "Ann has 3 boxes of 4 pens. How many pens are there?"}' | python agent.py
"""

import ast
import asyncio
import json
import operator
import os
import sys
from collections.abc import Mapping
from typing import Any

from autogen_agentchat.agents import AssistantAgent
from autogen_ext.models.openai import OpenAIChatCompletionClient

PROMPT = "You solve word problems. Use the calculator, then say the number."
MODEL = {
    "vision": False,
    "function_calling": True,
    "json_output": False,
    "family": "unknown",
    "structured_output": False,
}
OPERATIONS = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
}


def calculator(expression: str) -> str:
    """Calculate an expression of numbers, + - * / and parentheses."""
    try:
        return f"{evaluated(ast.parse(expression, mode='eval').body):g}"
    except (SyntaxError, ValueError, ZeroDivisionError) as error:
        return f"error: {error}"


def evaluated(node: ast.expr) -> float:
    """Return the value of a parsed expression.

    Raises:
        ValueError: If it has anything but numbers and the four operations.
    """
    match node:
        case ast.Constant(value=int() | float() as number):
            return number
        case ast.BinOp(left, op, right) if type(op) in OPERATIONS:
            return float(OPERATIONS[type(op)](evaluated(left), evaluated(right)))
    raise ValueError("only numbers, + - * / and parentheses")


async def answer(task: Mapping[str, Any]) -> str:
    """Solve one problem; the last message is the answer."""
    name = os.environ.get("OPENAI_MODEL", "gpt-4o-mini")
    client = OpenAIChatCompletionClient(model=name, model_info=MODEL, max_tokens=80)
    agent = AssistantAgent(
        "solver", client, tools=[calculator], system_message=PROMPT, max_tool_iterations=3
    )
    result = await agent.run(task=task["question"])
    await client.close()
    return str(result.messages[-1].content)


if __name__ == "__main__":
    print(asyncio.run(answer(json.load(sys.stdin))))
