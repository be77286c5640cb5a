"""The support desk's agent: a plain loop of model and tools on the official OpenAI client.

The system prompt is a feature flag, so that it can be changed without touching the agent.
OPENAI_BASE_URL and OPENAI_API_KEY say where the model is.

    python agent.py --tasks tasks.jsonl --answers answers.jsonl --flags flags.json
"""

import argparse
import json
import sys
import zlib
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from lines import read_lines
from openai import APIConnectionError, OpenAI, OpenAIError
from openfeature import api
from openfeature.client import OpenFeatureClient
from openfeature.contrib.provider.flagd import FlagdProvider
from openfeature.contrib.provider.flagd.config import ResolverType
from openfeature.evaluation_context import EvaluationContext
from openfeature.exception import OpenFeatureError
from progress import progress
from tools import TOOLS, run_tool

PROMPT_FLAG = "support-prompt"
DEFAULT_PROMPT = "You work at a support desk."
MAX_CALLS = 5
TASK_FIELDS = ("task_id", "request", "cases")


@dataclass(frozen=True, slots=True)
class Ticket:
    """One attempt at one task."""

    task: Mapping[str, Any]
    attempt: int

    @property
    def ticket_id(self) -> str:
        """The name of the attempt, which no other has."""
        return f"{self.task['task_id']}/{self.attempt}"


@dataclass(slots=True)
class Outcome:
    """The outcome of a ticket: a line of the answers file."""

    task_id: str
    attempt: int
    response_id: str | None = None
    actions: list[dict[str, Any]] = field(default_factory=list)
    text: str | None = None
    error: str | None = None


@dataclass(frozen=True, slots=True)
class Agent:
    """An agent and what it works with."""

    client: OpenAI
    flags: OpenFeatureClient
    model: str
    temperature: float
    seed: int

    def work(self, ticket: Ticket) -> Outcome:
        """Answer one ticket; what goes wrong between model and agent ends up in the outcome."""
        outcome = Outcome(ticket.task["task_id"], ticket.attempt)
        context = EvaluationContext(targeting_key=ticket.ticket_id)
        prompt = self.flags.get_string_value(PROMPT_FLAG, DEFAULT_PROMPT, context)
        try:
            self._converse(ticket, prompt, outcome)
        except OpenAIError as error:
            outcome.error = str(error)
        return outcome

    def _converse(self, ticket: Ticket, prompt: str, outcome: Outcome) -> None:
        messages: list[Any] = [
            {"role": "system", "content": prompt},
            {"role": "user", "content": ticket.task["request"]},
        ]
        for number in range(MAX_CALLS):
            response = self.client.chat.completions.create(
                model=self.model,
                messages=messages,
                tools=TOOLS,
                temperature=self.temperature,
                seed=zlib.crc32(f"{self.seed}/{ticket.ticket_id}/{number}".encode()),
            )
            message = response.choices[0].message
            outcome.response_id = response.id
            if not message.tool_calls:
                outcome.text = message.content
                return
            messages.append(message.model_dump(exclude_none=True))
            messages += [self._use_tool(call, ticket, outcome) for call in message.tool_calls]

    def _use_tool(self, call: Any, ticket: Ticket, outcome: Outcome) -> dict[str, Any]:
        name, arguments = call.function.name, read_arguments(call.function.arguments)
        outcome.actions.append({"name": name, "arguments": arguments})
        result = run_tool(name, arguments, ticket.task["cases"])
        return {"role": "tool", "tool_call_id": call.id, "content": json.dumps(result)}


def read_arguments(text: str) -> dict[str, Any]:
    """Read a tool call's arguments; a model can write anything, and nonsense is no arguments."""
    try:
        arguments = json.loads(text)
    except ValueError:
        return {}
    return arguments if isinstance(arguments, dict) else {}


def tickets(tasks: Sequence[Mapping[str, Any]], attempts: int) -> Iterator[Ticket]:
    """Name every attempt at every task."""
    return (Ticket(task, attempt) for attempt in range(attempts) for task in tasks)


def open_flags(path: Path) -> OpenFeatureClient:
    """Serve the flag file in this process, and wait until it answers.

    Raises:
        FileNotFoundError: If there is no such file.
        ValueError: If it is not a flag file.
    """
    if not path.is_file():
        raise FileNotFoundError(f"No flag file '{path}'.")
    provider = FlagdProvider(
        resolver_type=ResolverType.FILE, offline_flag_source_path=str(path.resolve())
    )
    try:
        # Until it is ready every evaluation returns the default, as if no flag were there.
        api.set_provider_and_wait(provider)
    except OpenFeatureError as error:
        raise ValueError(f"'{path}' is not a flagd flag file.") from error
    return api.get_client()


def first_model(client: OpenAI) -> str:
    """Ask the server which model it has.

    Raises:
        ConnectionError: If it does not answer.
    """
    try:
        return next(iter(client.models.list())).id
    except APIConnectionError as error:
        raise ConnectionError(f"No model server at {client.base_url} ({error})") from error


def run(agent: Agent, work: Sequence[Ticket], workers: int, answers: Path) -> int:
    """Answer the tickets, write each outcome as a line, and count those that failed."""
    failed = 0
    with answers.open("w", encoding="utf-8") as lines, ThreadPoolExecutor(workers) as pool:
        for outcome in progress(pool.map(agent.work, work), len(work), "tickets"):
            lines.write(json.dumps(asdict(outcome)) + "\n")
            failed += outcome.error is not None
    return failed


def main() -> None:
    """Answer every task of a file, several times each."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--tasks", type=Path, required=True)
    parser.add_argument("--answers", type=Path, required=True, help="one line an attempt")
    parser.add_argument("--flags", type=Path, default=Path(__file__).with_name("flags.json"))
    parser.add_argument("--attempts", type=int, default=1, help="at each task")
    parser.add_argument("--workers", type=int, default=1, help="tickets at the same time")
    parser.add_argument("--model", help="default: the first that the server names")
    parser.add_argument("--temperature", type=float, default=1.0)
    parser.add_argument("--seed", type=int, default=0, help="the same one draws the same answers")
    options = parser.parse_args()
    if min(options.attempts, options.workers) < 1:
        parser.error("--attempts and --workers must be 1 or more")
    try:
        work = list(tickets(read_lines(options.tasks, *TASK_FIELDS), options.attempts))
        client = OpenAI()
        model = options.model or first_model(client)
        flags = open_flags(options.flags)
        agent = Agent(client, flags, model, options.temperature, options.seed)
        failed = run(agent, work, options.workers, options.answers)
    except (OSError, ValueError, OpenAIError) as error:
        sys.exit(f"agent.py: {error}")
    print(f"{len(work)} tickets answered in {options.answers}, {failed} of them failed")
    if work and failed == len(work):
        sys.exit("agent.py: every ticket failed; the answers file says why")


if __name__ == "__main__":
    main()
