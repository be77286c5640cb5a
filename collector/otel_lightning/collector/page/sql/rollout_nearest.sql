SELECT DISTINCT rollout_id
FROM llm_calls
WHERE
    step = 0
    AND (starts_with(rollout_id, $start) OR trace_id = $rollout OR response_id = $rollout)
LIMIT 10
