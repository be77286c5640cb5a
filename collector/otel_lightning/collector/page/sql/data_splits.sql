SELECT split, count(*) AS transitions, count(DISTINCT rollout_id) AS rollouts, count(DISTINCT task_hash) AS tasks
FROM transition_rows
GROUP BY split
ORDER BY split
