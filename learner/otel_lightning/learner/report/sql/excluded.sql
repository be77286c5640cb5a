SELECT excluded AS reason, count(*) AS rollouts, min(rollout_id) AS example
FROM transition_rollouts
WHERE excluded IS NOT NULL
GROUP BY excluded
ORDER BY rollouts DESC, reason
