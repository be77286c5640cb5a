SELECT
    -- part: rollout_columns
    NULL::DOUBLE AS sort_key
FROM rollout_rows
WHERE
    rollout_id = $rollout
    AND start_time = make_timestamp_ns($at_ns) -- if: at_ns
