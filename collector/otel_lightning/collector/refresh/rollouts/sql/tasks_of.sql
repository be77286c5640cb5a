SELECT rollout_id, min(task_id) AS task_id
FROM rollout_tasks
WHERE rollout_id IN (FROM {rows})
GROUP BY rollout_id
