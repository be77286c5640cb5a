-- The last received reward of each of these rollouts: not those of rules and judges.
SELECT rollout_id, arg_max(value, "time") AS value
FROM rewards
WHERE rollout_id IN $rollouts AND isfinite(value) AND NOT $given_later
    AND ($any_reward OR name = $reward)
GROUP BY rollout_id
