-- The first staged reward that is not a finite number, or too large to compute with, if there is one.
FROM staged_rewards WHERE NOT isfinite(value) OR abs(value) > $huge ORDER BY rollout_id LIMIT 1
