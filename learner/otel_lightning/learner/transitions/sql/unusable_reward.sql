-- The first staged reward that is not a finite number, if there is one.
FROM staged_rewards WHERE NOT isfinite(value) ORDER BY rollout_id LIMIT 1
