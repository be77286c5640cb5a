-- One row more than a page tells whether there is a next page.
SELECT
    -- part: rollout_columns
    NULL::DOUBLE AS sort_key
FROM rollout_rows
WHERE
    TRUE
    -- part: rollouts_filter
    AND start_time <= make_timestamp_ns($after_ns) -- if: after_ns
    AND (start_time < make_timestamp_ns($after_ns) OR rollout_id > $after_id) -- if: after_ns
ORDER BY start_time DESC, rollout_id
LIMIT $rows
