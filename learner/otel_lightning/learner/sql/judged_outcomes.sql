-- The staged rewards of rollouts that ended and are judged without contradiction.
SELECT w.*
FROM staged_rewards w
JOIN staged_rollouts r USING (rollout_id)
WHERE r.excluded IS NULL OR r.excluded = 'without a completion'
