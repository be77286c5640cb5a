SELECT key, arm, min(propensity) AS propensity, min(policy_version) AS policy_version, count(*) AS times
FROM arms
WHERE rollout_id = $rollout
GROUP BY key, arm
ORDER BY key, arm
LIMIT 50
