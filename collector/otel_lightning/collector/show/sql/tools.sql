SELECT
    span_id, llm_span_id, tool_call_id, name,
    arguments::VARCHAR AS arguments,
    result::VARCHAR AS result,
    error_type,
    coalesce(told_error, FALSE) AS told_error,
    epoch_ns(start_time) AS start_ns,
    epoch_ns(end_time) AS end_ns
FROM tool_calls
WHERE rollout_id = $rollout AND $during
ORDER BY start_time, tool_call_id, name
