SELECT rollout_id, key, arm
FROM arms
WHERE list_contains($rollouts, rollout_id)
GROUP BY ALL
ORDER BY ALL
