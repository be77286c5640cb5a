SELECT rollout_id, task_id, outcome FROM rollouts WHERE rollout_id IS NOT NULL
