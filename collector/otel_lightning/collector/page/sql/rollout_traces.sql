SELECT trace_id, epoch_ns(min(start_time)) AS start_ns, count(*) AS calls
FROM llm_calls
WHERE
    rollout_id = $rollout
    AND start_time BETWEEN make_timestamp_ns($start_ns) AND make_timestamp_ns($end_ns) -- if: start_ns
GROUP BY trace_id
ORDER BY start_ns
LIMIT 20
