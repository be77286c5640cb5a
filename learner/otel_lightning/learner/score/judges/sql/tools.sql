SELECT
    rollout_id, llm_span_id, tool_call_id, name, arguments::VARCHAR AS arguments,
    result::VARCHAR AS result, error_type, source
FROM tool_calls
WHERE rollout_id IN $rollouts
ORDER BY rollout_id, start_time, span_id
