-- The ids of the tasks of some rollouts.
SELECT rollout_id, task_id
FROM rollout_rows
WHERE task_id IS NOT NULL AND rollout_id IN $rollouts
