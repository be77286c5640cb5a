-- One row per model call: the frame `calls` of a rule.
WITH tools AS (
    SELECT
        trace_id,
        llm_span_id AS span_id,
        list(
            {name: name, arguments: arguments::VARCHAR, result: result::VARCHAR, error_type: error_type}
            ORDER BY start_time, tool_call_id, name
        ) AS tools
    FROM tool_calls
    WHERE llm_span_id IS NOT NULL
    GROUP BY ALL
)
SELECT
    c.rollout_id,
    c.step,
    c.trace_id,
    c.span_id,
    r.task_id,
    c.service_name,
    c.agent_name,
    coalesce(c.response_model, c.request_model) AS model,
    c.start_time,
    c.end_time,
    (epoch_ns(c.end_time) - epoch_ns(c.start_time)) / 1e9 AS seconds,
    c.finish_reason,
    c.error_type,
    c.input_tokens,
    c.output_tokens,
    c.cached_input_tokens,
    c.reasoning_tokens,
    c.state_hash,
    c.tool_definitions::VARCHAR AS tool_definitions,
    c.input_messages::VARCHAR AS input_messages,
    c.output_messages::VARCHAR AS output_messages,
    coalesce(t.tools, []) AS tools
FROM llm_calls c
LEFT JOIN rollouts r USING (rollout_id)
LEFT JOIN tools t ON t.trace_id = c.trace_id AND t.span_id = c.span_id
WHERE c.rollout_id IS NOT NULL AND c.step IS NOT NULL AND $among
