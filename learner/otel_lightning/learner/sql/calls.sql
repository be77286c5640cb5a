-- One row a model call, narrow: no text is read, only a hash of what the model saw.
SELECT
    rollout_id,
    step,
    trace_id,
    span_id,
    agent_name,
    coalesce(len(completion_token_ids) > 0, FALSE)
        OR output_messages IS NOT NULL AS has_completion,
    state_hash,
    list_sum(completion_logprobs) AS behavior_logprob
FROM llm_calls
WHERE rollout_id IS NOT NULL AND step IS NOT NULL
