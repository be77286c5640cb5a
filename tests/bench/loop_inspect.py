"""The runner Inspect AI, for `loop.py`: an eval set whose solver starts the agent."""

import json
import sys
from pathlib import Path

from inspect_ai import Task, eval_set
from inspect_ai.dataset import Sample
from inspect_ai.scorer import Score, Target, accuracy, scorer
from inspect_ai.solver import Generate, TaskState, solver
from inspect_ai.util import subprocess

FOLDER, AGENT, JOBS, WAY = Path(sys.argv[1]), sys.argv[2], int(sys.argv[3]), sys.argv[4]


@solver
def agent():  # noqa: ANN201 - Inspect's own way
    """Start the agent."""

    async def solve(state: TaskState, generate: Generate) -> TaskState:
        del generate
        if WAY == "inside":
            with (FOLDER / "agents.log").open("a") as log:
                log.write(f"started {state.sample_id}\n")
                log.flush()
                log.write(f"ended {state.sample_id}\n")
            state.metadata["code"] = 0
            return state
        command = ["sh", "-c", AGENT, str(FOLDER / "agents.log"), str(state.sample_id)]
        done = await subprocess(command)
        state.metadata["code"] = done.returncode
        return state

    return solve


@scorer(metrics=[accuracy()])
def exit_code():  # noqa: ANN201 - likewise
    """Score by the exit code."""

    async def score(state: TaskState, target: Target) -> Score:
        del target
        return Score(value=int(state.metadata["code"] == 0))

    return score


if __name__ == "__main__":
    rows = map(json.loads, (FOLDER / "tasks.jsonl").read_text().splitlines())
    samples = [Sample(id=row["id"], input=str(row["n"])) for row in rows]
    done, _ = eval_set(
        Task(dataset=samples, solver=agent(), scorer=exit_code()),
        log_dir=str(FOLDER / "logs"),
        model="mockllm/model",
        max_samples=JOBS,
        max_subprocesses=JOBS,
        display="none",
    )
    sys.exit(0 if done else 1)
