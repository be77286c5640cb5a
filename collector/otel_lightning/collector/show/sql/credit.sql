SELECT step, split, arm_key, arm, propensity, reward, return_to_go, advantage
FROM transition_rows
WHERE task_hash = $task_hash AND rollout_id = $rollout
ORDER BY step
