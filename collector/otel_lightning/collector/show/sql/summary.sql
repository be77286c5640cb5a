SELECT
    * EXCLUDE (start_time, end_time),
    epoch_ns(start_time) AS start_ns,
    epoch_ns(end_time) AS end_ns
FROM rollout_rows
WHERE rollout_id = $rollout
