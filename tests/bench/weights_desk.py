"""The support desk of the examples in one process: its tasks, its tools, its grades, no network."""

import json
import sys
import zlib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import torch
from learner.conftest import Traces
from transformers import AutoModelForCausalLM, AutoTokenizer

from otel_lightning.learner.model_server.chat import decode, parse_reply, prompt_ids
from otel_lightning.learner.model_server.sampling import Completion, Request, sample

DESK = Path(__file__).parents[2] / "examples" / "support_desk"
sys.path.append(str(DESK))

from tasks import Task, choose_tasks, final_text  # noqa: E402 - of the example
from tools import TOOLS, run_tool  # noqa: E402

CALLS = 3
AT_ONCE = 64
TOKENS = 40


class Call(NamedTuple):
    """One model call."""

    prompt: list[int]
    completion: Completion
    text: str


class Rollout:
    """One attempt at a task, step by step."""

    def __init__(self, task: Task, number: int) -> None:
        self.task, self.number = task, number
        self.messages: list[dict[str, Any]] = [
            {"role": "system", "content": _system_prompt(task)},
            {"role": "user", "content": task.request},
        ]
        self.calls: list[Call] = []
        self.actions: list[dict[str, Any]] = []
        self.text: str | None = None

    @property
    def name(self) -> str:
        return f"{self.task.task_id}-{self.number}"

    @property
    def reward(self) -> float:
        arguments = {"order": self.task.order}
        wanted = [{"name": name, "arguments": arguments} for name in ("lookup", self.task.action)]
        said = self.text == final_text(self.task.action, self.task.order)
        return float(self.actions == wanted and said)

    def take(self, call: Call) -> None:
        """Go on after a completion: use the tools that it asks for, or end."""
        self.calls.append(call)
        reply = parse_reply(call.text)
        if not reply.calls:
            self.text = reply.content
            return
        asked = [
            {"type": "function", "function": {"name": c.name, "arguments": c.arguments}}
            for c in reply.calls
        ]
        self.messages.append({"role": "assistant", "tool_calls": asked})
        for c in reply.calls:
            arguments = json.loads(c.arguments)
            self.actions.append({"name": c.name, "arguments": arguments})
            result = run_tool(c.name, arguments, {self.task.order: self.task.case})
            self.messages.append({"role": "tool", "content": json.dumps(result)})


def _system_prompt(task: Task) -> str:
    """Choose one of the desk's prompts by the task, so that attempts of a task can be compared."""
    flags = json.loads((DESK / "flags.json").read_text(encoding="utf-8"))["flags"]
    prompts = list(flags["support-prompt"]["variants"].values())
    return str(prompts[zlib.crc32(task.task_id.encode()) % len(prompts)])


def run(folder: Path, tasks: Sequence[Task], samples: int, seed: int, heat: float) -> list[Rollout]:
    """Let a model work on tasks, several times each; the same seed draws the same answers."""
    torch.set_num_threads(1)
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    tokenizer = AutoTokenizer.from_pretrained(folder)
    rollouts = [Rollout(task, number) for number in range(samples) for task in tasks]
    for step in range(CALLS):
        going = [one for one in rollouts if one.text is None]
        prompts = [prompt_ids(tokenizer, one.messages, TOOLS) for one in going]
        asked = [
            Request(tuple(ids), heat, TOKENS, f"{seed}/{one.name}/{step}")
            for ids, one in zip(prompts, going, strict=True)
        ]
        for ids, one, completion in zip(prompts, going, _sampled(model, asked), strict=True):
            one.take(Call(ids, completion, decode(tokenizer, completion.token_ids)))
    return rollouts


def _sampled(model: Any, asked: Sequence[Request]) -> Iterator[Completion]:
    order = sorted(range(len(asked)), key=lambda i: len(asked[i].prompt_ids))
    found: dict[int, Completion] = {}
    for start in range(0, len(order), AT_ONCE):
        places = order[start : start + AT_ONCE]
        found |= dict(zip(places, sample(model, [asked[i] for i in places]), strict=True))
    return (found[i] for i in range(len(asked)))


def log(path: Path, rollouts: Sequence[Rollout]) -> None:
    """Write rollouts into a store, as the collector does."""
    traces = Traces(path)
    for one in rollouts:
        for step, call in enumerate(one.calls):
            said = [{"role": "assistant", "parts": [{"type": "text", "content": call.text}]}]
            traces.call(
                one.name,
                step,
                prompt_token_ids=call.prompt,
                completion_token_ids=list(call.completion.token_ids),
                completion_logprobs=list(call.completion.logprobs),
                output_messages=json.dumps(said),
            )
        traces.task(one.name, one.task.task_id)
        traces.reward(one.name, one.reward)
    traces.store()


def rewards(rollouts: Sequence[Rollout], seed: int) -> Mapping[tuple[str, int], float]:
    """Rewards by task and sample; tasks of different seeds are different ones."""
    return {(f"{seed}/{one.task.task_id}", one.number): one.reward for one in rollouts}


def tasks_of(seed: int, logged: int, new: int) -> tuple[list[Task], list[Task]]:
    """Draw tasks to learn from, and others that learning never sees."""
    return choose_tasks(logged, seed, "train"), choose_tasks(new, 1000 + seed, "held-out")
