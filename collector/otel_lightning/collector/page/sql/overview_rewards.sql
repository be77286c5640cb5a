-- Mean final reward of each interval, and half of its 95 % interval (normal approximation).
SELECT
    epoch_ns(start_time) // $bucket_ns * $bucket_ns AS start_ns,
    count(*) AS rollouts,
    avg(final_reward) AS mean,
    1.96 * coalesce(stddev_samp(final_reward), 0) / sqrt(count(*)) AS half
FROM rollout_rows
WHERE isfinite(final_reward) AND start_time > make_timestamp_ns($since_ns)
GROUP BY ALL
ORDER BY start_ns
