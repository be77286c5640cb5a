SELECT arm_key, arm, count(DISTINCT rollout_id) AS rollouts, avg(return_to_go) AS mean
FROM transition_rows WHERE step = 0 GROUP BY ALL ORDER BY ALL
