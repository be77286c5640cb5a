"""Log records without a trace that state their rollout, such as those of `lightning-learn run`.

Their rows depend on no span. So this module imports none of the code that reads spans: importing
that takes 0.1 CPU-seconds, which a run whose agents send nothing saves.
"""

from collections.abc import Collection, Iterable

from otel_lightning.collector.derive import time_order
from otel_lightning.collector.derive.rewards import rewards_and_arms
from otel_lightning.collector.derive.rows import Arm, Derived, Log, Reward, described
from otel_lightning.instrumentation.attributes import ROLLOUT_ID


def state_rollouts(logs: Iterable[Log]) -> bool:
    """Return whether `derived` gives the rows of these log records.

    They have no trace, and each reward and each arm among them states its rollout. Without that, a
    conversation id may name the rollout, and each dialect has its own key for conversation ids.
    """
    return all(
        not log.trace_id
        and (not rewards_and_arms.is_event(log.event_name) or log.attributes.get(ROLLOUT_ID))
        for log in logs
    )


def derived(logs: Collection[Log]) -> Derived:
    """Return the rows of log records for which `state_rollouts` holds, as `Batch` derives them."""
    rewards: dict[str, Reward] = {}
    arms: list[Arm] = []
    rows = Derived()
    for log in logs:
        try:
            for row in rewards_and_arms.of_log(log):
                if isinstance(row, Arm):
                    arms.append(row)
                else:
                    rewards[row.reward_id] = row
        except Exception as error:  # noqa: BLE001 - one odd log record must not cost the others
            rows.unread["", log.span_id or ""] = described(error)
    rows.rewards = sorted(rewards.values(), key=time_order.of_reward)
    rows.arms = rewards_and_arms.distinct(arms)
    for reward in rows.rewards:
        if reward.task_id and reward.rollout_id:
            rows.tasks.setdefault(reward.rollout_id, reward.task_id)
    return rows
