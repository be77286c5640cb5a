-- The staged rewards of rollouts that are not excluded, or only because they lack a completion.
SELECT r.rollout, w.reward_id, w.name, w.value, w."time", w.emitted, w.step
FROM staged_rewards w
JOIN staged_rollouts r USING (rollout_id)
WHERE r.excluded IS NULL OR r.excluded = 'without a completion'
