-- Where the two charts begin, if the store is younger than they reach back.
SELECT
    epoch_ns(min(CASE WHEN start_time > make_timestamp_ns($calls_ns) THEN start_time END)) AS calls_ns,
    epoch_ns(min(start_time)) AS rewards_ns
FROM llm_calls
WHERE start_time > make_timestamp_ns($rewards_ns)
