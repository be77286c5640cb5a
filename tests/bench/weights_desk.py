"""The support desk of the examples: its tasks, its tools, its grades."""

import json
import subprocess
import sys
import zlib
from functools import cache, partial
from pathlib import Path
from typing import Any

from weights_agents import EXAMPLES, Agent, Asked, Problem, Task

from otel_lightning.learner.model_server.chat import parse_reply

DESK = EXAMPLES / "support_desk"
sys.path.append(str(DESK))

from tasks import Task as Request  # noqa: E402 - of the example
from tasks import choose_tasks, final_text  # noqa: E402
from tools import TOOLS, run_tool  # noqa: E402

CALLS = 3


def make_base(folder: Path) -> None:
    """Train the desk's first model."""
    words = [sys.executable, str(DESK / "model.py"), "--output", str(folder)]
    subprocess.run(words, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def tasks(_: Path, seed: int, logged: int, new: int) -> tuple[list[Task], list[Task]]:
    """Draw tasks to learn from, and others that learning never sees."""
    return (
        [Task(one.task_id, partial(agent, one)) for one in choose_tasks(logged, seed, "train")],
        [Task(one.task_id, partial(agent, one)) for one in choose_tasks(new, seed, "held-out")],
    )


def agent(task: Request) -> Agent:
    """Use the tools that the model asks for until it answers; grade as the example does."""
    messages: list[dict[str, Any]] = [
        {"role": "system", "content": _system_prompt(task.task_id)},
        {"role": "user", "content": task.request},
    ]
    actions: list[dict[str, Any]] = []
    arguments = {"order": task.order}
    wanted = [{"name": name, "arguments": arguments} for name in ("lookup", task.action)]
    for _ in range(CALLS):
        reply = parse_reply((yield Asked(messages, TOOLS)))
        if not reply.calls:
            right = final_text(task.action, task.order)
            return float(actions == wanted and reply.content == right)
        asked = [
            {"type": "function", "function": {"name": c.name, "arguments": c.arguments}}
            for c in reply.calls
        ]
        messages = [*messages, {"role": "assistant", "tool_calls": asked}]
        for c in reply.calls:
            given = json.loads(c.arguments)
            actions.append({"name": c.name, "arguments": given})
            result = run_tool(c.name, given, {task.order: task.case})
            messages.append({"role": "tool", "content": json.dumps(result)})
    return 0.0


def _system_prompt(task_id: str) -> str:
    """Choose one of the desk's prompts by the task, so that attempts of a task can be compared."""
    prompts = _system_prompts()
    return prompts[zlib.crc32(task_id.encode()) % len(prompts)]


@cache
def _system_prompts() -> list[str]:
    flags = json.loads((DESK / "flags.json").read_text(encoding="utf-8"))["flags"]
    return [str(text) for text in flags["support-prompt"]["variants"].values()]


PROBLEM = Problem("desk", "Support desk", make_base, tasks, tokens=40)
