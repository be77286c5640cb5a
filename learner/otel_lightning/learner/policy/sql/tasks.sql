SELECT rollout_id, rollout, task_hash FROM staged_rollouts
