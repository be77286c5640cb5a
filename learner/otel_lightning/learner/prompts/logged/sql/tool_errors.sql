SELECT rollout_id, name, coalesce(error_type, 'error') AS error_type, result::VARCHAR AS result
FROM tool_calls
WHERE rollout_id IN $rollouts AND (error_type IS NOT NULL OR told_error)
ORDER BY rollout_id, start_time, span_id
