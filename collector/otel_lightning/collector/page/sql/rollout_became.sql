SELECT excluded, task_hash::VARCHAR AS task_hash, usable_calls, failed_calls, context_calls
FROM transition_rollouts
WHERE rollout_id = $rollout
