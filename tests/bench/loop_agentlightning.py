"""The runner agentlightning 0.3, for `loop.py`: a Trainer whose rollout starts the agent."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import agentlightning as agl

FOLDER, AGENT, JOBS, WAY = Path(sys.argv[1]), sys.argv[2], int(sys.argv[3]), sys.argv[4]


@agl.rollout
def agent(task: dict[str, Any], prompt_template: agl.PromptTemplate) -> float:
    """Start the agent; the reward is by its exit code."""
    del prompt_template  # the Trainer skips rollouts without a resource
    if WAY == "inside":
        with (FOLDER / "agents.log").open("a") as log:
            log.write(f"started {task['id']}\n")
            log.flush()
            log.write(f"ended {task['id']}\n")
        return 1.0
    command = ["sh", "-c", AGENT, str(FOLDER / "agents.log"), task["id"]]
    return float(subprocess.run(command, check=False).returncode == 0)


if __name__ == "__main__":
    tasks = [json.loads(line) for line in (FOLDER / "tasks.jsonl").read_text().splitlines()]
    prompt = agl.PromptTemplate(template="{n}", engine="f-string")
    trainer = agl.Trainer(
        n_runners=JOBS,
        algorithm=agl.Baseline(polling_interval=0.2, max_queue_length=len(tasks)),
        tracer=agl.OtelTracer(),
        initial_resources={"prompt_template": prompt},
    )
    trainer.fit(agent, train_dataset=tasks)
