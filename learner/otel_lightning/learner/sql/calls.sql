-- One row a model call, narrow: no text leaves the store, only a hash of what the model saw.
-- Messages and tools are stored in one canonical form; json() drops white space.
SELECT
    rollout_id,
    step,
    trace_id,
    span_id,
    agent_name,
    coalesce(len(completion_token_ids) > 0, FALSE)
        OR coalesce(json_array_length(output_messages) > 0, FALSE) AS has_completion,
    sha256(nullif(
        coalesce(
            array_to_string(prompt_token_ids, ' '),
            concat(json(input_messages), json(tool_definitions))
        ),
        ''
    )) AS state_hash,
    list_sum(completion_logprobs) AS behavior_logprob
FROM llm_calls
WHERE rollout_id IS NOT NULL AND step IS NOT NULL
