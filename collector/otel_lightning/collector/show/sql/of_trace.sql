SELECT DISTINCT rollout_id
FROM llm_calls
WHERE trace_id = $asked AND rollout_id IS NOT NULL
ORDER BY rollout_id
LIMIT $most
