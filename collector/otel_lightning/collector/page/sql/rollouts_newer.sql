-- The rows before one, the nearest first.
SELECT
    -- part: rollout_columns
    NULL::DOUBLE AS sort_key
FROM rollout_rows
WHERE
    TRUE
    -- part: rollouts_filter
    AND start_time >= make_timestamp_ns($after_ns)
    AND (start_time > make_timestamp_ns($after_ns) OR rollout_id < $after_id)
ORDER BY start_time, rollout_id DESC
LIMIT $rows
