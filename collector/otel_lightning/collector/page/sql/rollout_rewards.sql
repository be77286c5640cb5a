SELECT
    reward_id, span_id, response_id, name, value, label, left(explanation, 2000) AS explanation, source,
    epoch_ns("time") AS time_ns
FROM rewards
WHERE rollout_id = $rollout
ORDER BY "time", reward_id
LIMIT 200
