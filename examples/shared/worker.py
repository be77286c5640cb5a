"""Run an unchanged agent on many tasks in one process: its framework is imported only once.

    python worker.py agent.py < attempts.jsonl > outcomes.jsonl

The agent is a Python file with a function `answer(task)`, plain or async. A line of input has
`rollout_id`, `task_id` and `task`; each becomes one rollout. A line of output has the rollout's
id, its start and end in nanoseconds, and the agent's output or error.
"""

import asyncio
import importlib.util
import inspect
import json
import os
import sys
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from otel_lightning.instrumentation import rollout

Answer = Callable[[Mapping[str, Any]], Any]


def load(path: Path) -> Answer:
    """Import an agent's file and return its function `answer`."""
    sys.path.insert(0, str(path.resolve().parent))
    spec = importlib.util.spec_from_file_location("agent", path)
    if spec is None or spec.loader is None:
        sys.exit(f"worker.py: '{path}' is no Python file.")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    answer: Answer = module.answer
    if not inspect.iscoroutinefunction(answer):
        return answer
    return lambda task: asyncio.run(answer(task))


def attempt(answer: Answer, line: str) -> dict[str, Any]:
    """Run one rollout; an exception of the agent is its outcome."""
    asked = json.loads(line)
    outcome: dict[str, Any] = {"rollout_id": asked["rollout_id"], "started": time.time_ns()}
    with rollout(task_id=asked["task_id"], rollout_id=asked["rollout_id"]):
        try:
            outcome["output"] = str(answer(asked["task"]))
        except Exception as error:  # noqa: BLE001 - an agent may raise anything
            outcome["error"] = f"{type(error).__name__}: {error}"
    return outcome | {"ended": time.time_ns()}


def main() -> None:
    """Run the rollouts of standard input, several at once."""
    answer = load(Path(sys.argv[1]))
    with ThreadPoolExecutor(int(os.environ.get("WORKER_THREADS", "8"))) as threads:
        for outcome in threads.map(lambda line: attempt(answer, line), sys.stdin):
            print(json.dumps(outcome), flush=True)


if __name__ == "__main__":
    main()
