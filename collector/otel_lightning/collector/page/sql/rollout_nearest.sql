SELECT rollout_id
FROM rollout_rows
WHERE starts_with(rollout_id, $start) OR trace_id = $rollout
ORDER BY rollout_id
LIMIT 10
