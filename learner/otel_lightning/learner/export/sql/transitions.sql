-- One row per transition with its text, for calls with row ids from $first to $last.
SELECT
    t.rollout_id, t.step, t.trace_id, t.span_id, c.agent_name, t.task_id, printf('%016x', t.task_hash) AS task_hash, t.split, c.state_hash,
    c.input_messages::VARCHAR AS messages,
    c.tool_definitions::VARCHAR AS tools,
    c.output_messages::VARCHAR AS completion,
    c.content, c.finish_reason,
    t.arm_key, t.arm, t.propensity, t.behavior_logprob, t.policy_version,
    coalesce(c.response_model, c.request_model) AS model,
    TRY_CAST(c.request_params ->> '$.temperature' AS DOUBLE) AS temperature,
    c.prompt_token_ids, c.completion_token_ids, c.completion_logprobs,
    t.reward, t.return_to_go, t.advantage, t.advantage > $threshold AS above,
    t.terminated, t.truncated, t.next_span_id
FROM exported t
LEFT JOIN llm_calls c
    ON c.trace_id = t.trace_id AND c.span_id = t.span_id AND c.rowid BETWEEN $first AND $last
WHERE t.place BETWEEN $first AND $last
