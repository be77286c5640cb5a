SELECT rollout_id, task_hash FROM staged_rollouts
