"""Agents in one process, many at once: no network, one batch of a model for all that wait."""

import json
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import torch
from learner.conftest import Traces
from transformers import AutoModelForCausalLM, AutoTokenizer

from otel_lightning.learner.model_server.chat import decode, prompt_ids
from otel_lightning.learner.model_server.sampling import Completion, Request, sample

EXAMPLES = Path(__file__).parents[2] / "examples"
AT_ONCE = 64


class Asked(NamedTuple):
    """What an agent asks the model."""

    messages: list[dict[str, Any]]
    tools: Sequence[Mapping[str, Any]] = ()
    agent: str | None = None
    """Name of the agent, where a rollout has several."""


Agent = Generator[Asked, str, float]
"""Asks the model, gets the text of its answers, and returns the reward of the rollout."""


class Task(NamedTuple):
    """One task: its id, and how an agent begins to work on it."""

    id: str
    start: Callable[[], Agent]


@dataclass(frozen=True, slots=True)
class Problem:
    """What is learned: tasks, a first model, and the agents whose calls learning may change."""

    name: str
    title: str
    make_base: Callable[[Path], None]
    """Train the first model into a folder."""
    tasks: Callable[[Path, int, int, int], tuple[list[Task], list[Task]]]
    """Draw tasks by the base's folder, a seed, and how many to learn from and to judge by."""
    tokens: int
    """Longest completion."""
    learners: tuple[str, ...] = ()


class Sampling(NamedTuple):
    """How often each task is tried, and how answers are drawn."""

    samples: int
    seed: int
    temperature: float


class Call(NamedTuple):
    """One model call."""

    prompt: list[int]
    completion: Completion
    text: str
    agent: str | None


@dataclass(slots=True)
class Rollout:
    """One attempt at a task."""

    task: str
    number: int
    agent: Agent
    asked: Asked | None = None
    calls: list[Call] = field(default_factory=list)
    reward: float = 0.0

    @property
    def name(self) -> str:
        return f"{self.task}-{self.number}"

    def go_on(self, text: str | None) -> None:
        """Give the agent the model's answer; None begins."""
        try:
            self.asked = next(self.agent) if text is None else self.agent.send(text)
        except StopIteration as ended:
            self.asked, self.reward = None, float(ended.value)


def run(problem: Problem, folder: Path, tasks: Sequence[Task], how: Sampling) -> list[Rollout]:
    """Let a model work on tasks; the same seed draws the same answers."""
    torch.set_num_threads(1)
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    tokenizer = AutoTokenizer.from_pretrained(folder)
    rollouts = [Rollout(task.id, n, task.start()) for n in range(how.samples) for task in tasks]
    for rollout in rollouts:
        rollout.go_on(None)
    while going := [(one, one.asked) for one in rollouts if one.asked is not None]:
        prompts = [prompt_ids(tokenizer, a.messages, a.tools) for _, a in going]
        requests = [
            Request(tuple(ids), how.temperature, problem.tokens, _seed(how, one))
            for ids, (one, _) in zip(prompts, going, strict=True)
        ]
        answers = _sampled(model, requests)
        for ids, (one, asked), completion in zip(prompts, going, answers, strict=True):
            text = decode(tokenizer, completion.token_ids)
            one.calls.append(Call(ids, completion, text, asked.agent))
            one.go_on(text)
    return rollouts


def _seed(how: Sampling, one: Rollout) -> str:
    return f"{how.seed}/{one.name}/{len(one.calls)}"


def _sampled(model: Any, asked: Sequence[Request]) -> Iterator[Completion]:
    """Sample in batches of prompts of similar length, so that little is padded."""
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
                agent_name=call.agent,
            )
        traces.task(one.name, one.task)
        traces.reward(one.name, one.reward)
    traces.store()


def rewards_of(rollouts: Sequence[Rollout]) -> dict[str, list[float]]:
    """Rewards by task, in the order of the samples."""
    found: dict[str, list[float]] = {}
    for one in rollouts:
        found.setdefault(one.task, []).append(one.reward)
    return found
