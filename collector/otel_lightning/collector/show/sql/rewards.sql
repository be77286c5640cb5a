SELECT span_id, name, value, label, explanation, source, epoch_ns("time") AS time_ns
FROM rewards
WHERE rollout_id = $rollout
ORDER BY "time", reward_id
