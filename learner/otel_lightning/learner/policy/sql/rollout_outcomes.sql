-- The staged rewards of rollouts that ended and are judged without contradiction.
SELECT r.rollout, w.reward_id, w.name, w.value, w."time", w.emitted, w.step
FROM staged_rewards w
JOIN staged_rollouts r USING (rollout_id)
WHERE r.excluded IS NULL OR r.excluded = 'without a completion'
