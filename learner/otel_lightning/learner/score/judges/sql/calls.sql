SELECT
    rollout_id, trace_id, span_id, agent_name, content, error_type, error_message,
    tool_definitions::VARCHAR AS tool_definitions,
    input_messages::VARCHAR AS input_messages,
    output_messages::VARCHAR AS output_messages
FROM llm_calls
WHERE rollout_id IN $rollouts
ORDER BY rollout_id, step, span_id
