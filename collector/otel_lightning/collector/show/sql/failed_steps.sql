SELECT DISTINCT c.step
FROM llm_calls c
WHERE c.rollout_id = $rollout AND $during AND c.step IS NOT NULL AND (
    c.error_type IS NOT NULL
    OR c.finish_reason IN ('length', 'content_filter', 'error')
    OR c.span_id IN (
        SELECT llm_span_id
        FROM tool_calls
        WHERE rollout_id = $rollout AND (error_type IS NOT NULL OR told_error)
    )
)
ORDER BY c.step
