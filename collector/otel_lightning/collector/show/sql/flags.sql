SELECT span_id, key, arm, propensity
FROM arms
WHERE rollout_id = $rollout
ORDER BY "time", key, arm
