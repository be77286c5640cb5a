SELECT
    -- part: rollout_columns
    NULL::DOUBLE AS sort_key
FROM rollout_rows
WHERE
    rollout_id = $rollout
    AND ($at_ns IS NULL OR start_time = make_timestamp_ns($at_ns))
