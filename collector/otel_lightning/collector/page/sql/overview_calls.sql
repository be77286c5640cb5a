-- Model calls of the two days before the newest one, in intervals of the same length.
SELECT
    epoch_ns(start_time) // $bucket_ns * $bucket_ns AS start_ns,
    count(*) AS calls,
    count(error_type) AS errors
FROM llm_calls
WHERE start_time > make_timestamp_ns($since_ns)
GROUP BY ALL
ORDER BY start_ns
