WITH one AS (
    SELECT
        * EXCLUDE (input_messages, output_messages),
        -- part: short_messages
    FROM llm_calls
    WHERE
        rollout_id = $rollout AND step = $step
        AND start_time >= make_timestamp_ns($at_ns) -- if: at_ns
    LIMIT 1
)
SELECT
    step, trace_id, span_id, agent_name, service_name, dialect, operation, provider, request_model,
    response_model, response_id, epoch_ns(start_time) AS start_ns, epoch_ns(end_time) AS end_ns,
    finish_reason, error_type, error_message, input_tokens, output_tokens, cached_input_tokens,
    reasoning_tokens, conversation_id, content, state_hash,
    left(request_params::VARCHAR, $most_text) AS request_params,
    left(tool_definitions::VARCHAR, $most_text) AS tool_definitions,
    if(length(input) < $most_text, input, NULL) AS input_messages,
    length(input) AS input_length,
    left(input, $most_text) AS input_start,
    if(length(output) < $most_text, output, NULL) AS output_messages,
    length(output) AS output_length,
    left(output, $most_text) AS output_start
FROM one
