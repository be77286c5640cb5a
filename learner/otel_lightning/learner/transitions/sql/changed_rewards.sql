-- Rewards of the rollouts of changed tasks, sorted by task hash, so that a bucket is one range.
CREATE OR REPLACE TEMP TABLE changed_rewards AS
SELECT r.task_hash, r.rollout, w.reward_id, w.name, w.value, w."time", w.emitted, w.step
FROM staged_rewards w
JOIN staged_rollouts r USING (rollout_id)
WHERE r.excluded IS NULL AND r.task_hash IN (SELECT task_hash FROM changed_tasks)
ORDER BY r.task_hash
