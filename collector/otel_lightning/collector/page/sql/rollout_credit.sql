SELECT
    step, arm_key, arm, propensity, reward, return_to_go, advantage, split, terminated, truncated
FROM transition_rows
WHERE task_hash = $task_hash::UBIGINT AND rollout_id = $rollout AND step BETWEEN $first AND $last
ORDER BY step
