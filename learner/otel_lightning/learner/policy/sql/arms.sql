SELECT rollout_id, key, arm, propensity, policy_version, "time"
FROM arms
WHERE rollout_id IS NOT NULL
