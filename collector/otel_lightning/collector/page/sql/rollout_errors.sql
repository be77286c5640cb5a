SELECT step
FROM llm_calls
WHERE
    rollout_id = $rollout
    AND start_time BETWEEN make_timestamp_ns($start_ns) AND make_timestamp_ns($end_ns) -- if: start_ns
    AND error_type IS NOT NULL AND step IS NOT NULL
ORDER BY step
LIMIT 500
