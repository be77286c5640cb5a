"""Run azure-agents-learning-sdk on logged rollouts, in an environment of its own.

    python azure_worker.py ROLLOUTS.jsonl FOLDER RUNS LIMIT

Steps of its README: a softmax policy over actions, episodes and their rewards in its local file
store, and a learner that `LearningRunner` calls. The rewards are already there, so no judge is
asked. Prints JSON: probabilities and CPU seconds of storing and of the runs.
"""

import json
import math
import sys
import time
from pathlib import Path

from agent_learning.policy.softmax_bandit import SoftmaxPolicy
from agent_learning.storage.local import LocalFileStore
from agent_learning.training.runner import LearningRunner
from agent_learning.types import Action, Episode, Reward, RewardSource

AGENT = "desk"


def main() -> None:
    rollouts, folder, runs, limit = sys.argv[1:]
    rows = [json.loads(line) for line in Path(rollouts).read_text().splitlines()]
    store = LocalFileStore(folder)
    begin = time.process_time()
    for number, row in enumerate(rows):
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
    stored = time.process_time()
    arms = sorted({row["arm"] for row in rows})
    actions = [Action(id=arm) for arm in arms]
    policy = SoftmaxPolicy.from_actions(actions, agent_id=AGENT)
    runner = LearningRunner(store=store, policy=policy, metrics=[])
    for _ in range(int(runs)):
        runner.run_offline_batch(AGENT, episode_limit=int(limit), score_missing=False)
    learned = time.process_time()
    told = {
        "probabilities": dict(zip(arms, policy.probabilities(), strict=True)),
        "storing": stored - begin,
        "learning": learned - stored,
    }
    print(json.dumps(told))


if __name__ == "__main__":
    main()
