-- The times of the rollout let DuckDB skip the blocks of all other calls.
SELECT
    step, trace_id, span_id, agent_name,
    coalesce(response_model, request_model) AS model,
    epoch_ns(start_time) AS start_ns,
    epoch_ns(end_time) AS end_ns,
    finish_reason, error_type, error_message, content, input_tokens, output_tokens, state_hash,
    input_messages::VARCHAR AS input_messages,
    output_messages::VARCHAR AS output_messages,
    merged_span_ids,
    list_avg(completion_logprobs) AS logprob_mean,
    list_min(completion_logprobs) AS logprob_least
FROM llm_calls
WHERE rollout_id = $rollout AND $during AND step IS NOT NULL AND $chosen
ORDER BY step
