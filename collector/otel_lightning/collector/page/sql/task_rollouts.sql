SELECT
    -- part: rollout_columns
    NULL::DOUBLE AS sort_key
FROM rollout_rows
WHERE task_id = $task
ORDER BY start_time DESC, rollout_id
LIMIT $rows
