"""Learn prompts: `lightning-learn loop`, and controls that are written from shuffled rewards."""

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

from otel_lightning.collector.maintain.backup import back_up_by_path
from otel_lightning.collector.store import open_store
from otel_lightning.learner.policy.serving import flag_file
from otel_lightning.learner.prompts.compare import champion
from otel_lightning.learner.prompts.logged.rollouts import Window
from otel_lightning.learner.prompts.proposals.ask import Proposer
from otel_lightning.learner.prompts.proposals.plan import Request
from otel_lightning.learner.prompts.propose import propose_prompts
from otel_lightning.learner.rollout_runner import Arms, Job
from otel_lightning.learner.rollout_runner.tasks import Task
from otel_lightning.learner.score.judges.endpoint import Endpoint
from shared.loops import Round, curve, draw, lines_of, run_rounds, write_settings, write_tasks
from shared.rollouts import (
    Models,
    background,
    model_variables,
    starting_ingester,
    wait_for,
)
from shared.study import MODELS, TEMPERATURES, Rewards, Study, averaged, ran, rewards_of

FIRST = "first"
RECORDS, CHARACTERS = 100_000, 100_000_000
"""Records that the writer of prompts reads, and their length: all that there are. Of rollouts that
run at once the order of their ends decides which ones are the newest, and it differs between two
runs of the same seed."""
GATE_SHARE = 0.5
"""The first line that is found helps half of the requests: many rollouts are needed to see it."""


def prompts_study(
    one: Study, tasks: Sequence[Task], held_out: Sequence[Task]
) -> dict[tuple[str, str], Rewards]:
    """Learn a prompt in rounds, and compare it with the first one and with a control."""
    learned_from = {task.task_id for task in tasks}
    lines = [line for line in one.example.tasks(one.folder) if line["id"] in learned_from]
    with started(one) as (models, url):
        rounds, _ = run_rounds(one, settings(one, url, lines, final=0.0))
        print("\n".join(["", *curve(rounds), ""]), flush=True)
        draw(rounds, one.example.NAME, one.folder / "curve.svg")
        texts = {"before": one.example.PROMPT, "after": live_text(one)}
        for number in range(1, one.size.controls + 1):
            texts[f"control-{number}"] = control_text(one, url, number)
        for name, text in texts.items():
            print(f"{name}: {' '.join(text.splitlines())}", flush=True)
        arms = Arms(one.example.FLAG, write_flag(one, "arms.json", texts), [*texts])
        return compared(one, models, held_out, arms)


def prompts_loop(one: Study) -> tuple[list[Round], str]:
    """Learn a prompt in rounds, with a last report on tasks that nobody has read."""
    with started(one) as (_, url):
        return run_rounds(one, settings(one, url, lines_of(one), final=0.25))


@contextmanager
def started(one: Study) -> Iterator[tuple[Models, str]]:
    """Serve the first model and the writer for the block."""
    with (
        starting_ingester(one.store) as wait,
        closing(Models()) as models,
        writer(one) as url,
    ):
        os.environ.update(model_variables(models.url))
        models.serve(one.folder / "base", 1.0, one.seed)
        wait()
        yield models, url


@contextmanager
def writer(one: Study) -> Iterator[str]:
    """Serve the model that writes prompts: the one of WRITER_URL, or the example's stand-in."""
    if url := os.environ.get("WRITER_URL"):
        yield url
        return
    port_file = one.folder / "writer.port"
    program = Path(one.example.__file__ or "").with_name("writer.py")
    command = [str(one.agent.python), str(program), "--port-file", str(port_file)]
    with background(command) as process:
        wait_for(process, port_file)
        yield f"http://127.0.0.1:{port_file.read_text()}/v1"


def settings(one: Study, url: str, lines: Sequence[Mapping[str, Any]], final: float) -> Path:
    """Write the settings of the loop, its tasks, and its flag file with the first prompt."""
    parts: dict[str, dict[str, Any]] = {
        "run": {
            "tasks": str(write_tasks(one, lines)),
            "serve": one.agent.worker,
            "jobs": one.size.arm_jobs,
            "grade": one.rule,
            "seed": one.seed,
        },
        "learn": {"rounds": one.size.rounds, "what": ["prompts"]},
        "split": {"held_out": GATE_SHARE, "final": final},
        "gate": {"samples": one.size.gate_samples},
        "prompts": {
            "key": one.example.FLAG,
            "flags": str(write_flag(one, "flags.json", {FIRST: one.example.PROMPT})),
            "endpoint": url,
            "model": os.environ.get("WRITER_MODEL", "writer"),
            "candidates": 1,
            "records": RECORDS,
            "max_prompt": CHARACTERS,
        },
    }
    return write_settings(one, parts)


def write_flag(one: Study, name: str, texts: Mapping[str, str]) -> Path:
    """Write a flag file with these prompts; the first is served."""
    flag = {"state": "ENABLED", "defaultVariant": next(iter(texts)), "variants": dict(texts)}
    file = one.folder / name
    file.write_text(json.dumps({"flags": {one.example.FLAG: flag}}, indent=2), encoding="utf-8")
    return file


def live_text(one: Study) -> str:
    """Return the prompt that has most of the traffic."""
    flags, key = one.folder / "flags.json", one.example.FLAG
    variants = flag_file.read_flag_file(flags, key)["flags"][key]["variants"]
    return str(variants[champion(flags, key)])


def control_text(one: Study, url: str, shuffle: int) -> str:
    """Let the writer improve the first prompt as often as in the loop, by shuffled rewards.

    It begins with a copy of the store that knows no proposal: one that the loop or another control
    had made before would be refused.

    Args:
        one: The study.
        url: Where the writer is.
        shuffle: Number of the control; each has other shuffles.
    """
    text: str = one.example.PROMPT
    store = one.folder / f"control-{shuffle}.duckdb"
    back_up_by_path(one.store, store)
    with open_store(store) as opened:
        opened.execute("DELETE FROM prompts")
    endpoint = Endpoint(url, os.environ.get("WRITER_MODEL", "writer"), 1.0, 0, 60.0)
    for number in range(1, one.size.rounds + 1):
        request = Request(
            window=Window(
                key=one.example.FLAG,
                reward=one.example.RULE,
                held_out=GATE_SHARE,
                shuffle_rewards=one.seed + 100 * shuffle + number,
            ),
            flags=write_flag(one, "control.json", {FIRST: text}),
            cache=one.folder / "control.judge",
            candidates=1,
            records=RECORDS,
            max_prompt=CHARACTERS,
            run_id=f"control-{shuffle}.{number}",
        )
        with closing(Proposer(endpoint)) as proposer:
            proposed = propose_prompts(store, request, proposer).candidates
        text = str(proposed[0].value) if proposed else text
    return text


def compared(
    one: Study, models: Models, held_out: Sequence[Task], arms: Arms
) -> dict[tuple[str, str], Rewards]:
    """Run the held-out tasks with each prompt, at each temperature."""
    rewards = {}
    for temperature in dict.fromkeys(temperature for _, temperature in one.stages()):
        models.serve(one.folder / "base", TEMPERATURES[temperature], one.seed)
        samples = 1 if temperature == "greedy" else one.size.held_out_samples
        worker = one.agent.worker
        job = Job(
            held_out,
            serve=worker,
            name=temperature,
            samples=samples,
            jobs=one.size.arm_jobs,
            arms=arms,
        )
        report = ran(one, job)
        by_arm = {arm: rewards_of(report, arm) for arm in arms.names}
        controls = [rewards for arm, rewards in by_arm.items() if arm.startswith("control")]
        together = by_arm | {"control": averaged(controls)}
        rewards |= {(model, temperature): together[model] for model in MODELS}
    return rewards
