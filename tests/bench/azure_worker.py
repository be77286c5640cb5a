"""Run azure-agents-learning-sdk on logged rollouts, in an environment of its own.

    python azure_worker.py ROLLOUTS.jsonl STORE LIMIT RUNS [MARKS]

STORE is a folder for its local file store, or `memory` for the store that its quick start uses.
RUNS is a number of runs after all rollouts are stored, each of the newest LIMIT rollouts. With
RUNS `as-logged` there is a run whenever LIMIT further rollouts have been stored: the quick start
of the package (`help(agent_learning)`, LIMIT 200), so that each rollout is learned from once.
MARKS are numbers of rollouts, such as 50000,100000: a line of JSON is printed when the runs have
reached one, since the first rollouts of a long log cost what a short log costs.

The steps are those of its README and its quick start: a softmax policy over actions, episodes,
their rewards, and a learner that `LearningRunner` calls. The rewards are already there, so no judge
is asked. Prints JSON: probabilities and CPU seconds of storing and of the runs.
"""

import json
import math
import sys
import time
from pathlib import Path
from typing import Any

from agent_learning.policy.softmax_bandit import SoftmaxPolicy
from agent_learning.storage.local import LocalFileStore
from agent_learning.storage.memory import InMemoryStore
from agent_learning.training.runner import LearningRunner
from agent_learning.types import Action, Episode, Reward, RewardSource

AGENT = "desk"


def put(store: Any, number: int, row: dict[str, Any]) -> None:
    """Store one rollout and its reward."""
    at = f"2026-11-01T00:00:00.{number:09}+00:00"
    episode = Episode(
        id=f"e{number}",
        agent_id=AGENT,
        action_id=row["arm"],
        action_logprob=math.log(row["propensity"]),
        created_at=at,
    )
    store.store_episode(episode)
    store.store_reward(
        Reward(
            episode_id=episode.id,
            agent_id=AGENT,
            source=RewardSource.AGGREGATE,
            value=row["reward"],
            created_at=at,
        )
    )


def main() -> None:
    rollouts, place, limit, runs = sys.argv[1:5]
    marks = {int(mark) for argument in sys.argv[5:] for mark in argument.split(",")}
    rows = [json.loads(line) for line in Path(rollouts).read_text().splitlines()]
    store = InMemoryStore() if place == "memory" else LocalFileStore(place)
    arms = sorted({row["arm"] for row in rows})
    policy = SoftmaxPolicy.from_actions([Action(id=arm) for arm in arms], agent_id=AGENT)
    runner = LearningRunner(store=store, policy=policy, metrics=[])
    as_logged, size = runs == "as-logged", int(limit)
    storing = learning = 0.0
    for first in range(0, len(rows), size if as_logged else len(rows)):
        begin = time.process_time()
        part = rows[first : first + size] if as_logged else rows
        for number, row in enumerate(part, start=first):
            put(store, number, row)
        stored = time.process_time()
        for _ in range(1 if as_logged else int(runs)):
            runner.run_offline_batch(AGENT, episode_limit=size, score_missing=False)
        storing += stored - begin
        learning += time.process_time() - stored
        if first + len(part) in marks | {len(rows)}:
            told = {
                "rollouts": first + len(part),
                "probabilities": dict(zip(arms, policy.probabilities(), strict=True)),
                "storing": storing,
                "learning": learning,
            }
            print(json.dumps(told), flush=True)


if __name__ == "__main__":
    main()
