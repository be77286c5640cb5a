-- What names the task of a rollout without a task id: the user's messages in its first call. Hashed
-- once per state, so that the messages of a call are not read again by every build.
CREATE TABLE task_messages (
    state_hash VARCHAR NOT NULL,
    user_hash VARCHAR
);

-- `task_hash` says which rollouts are of one task, also where no task id was recorded.
CREATE OR REPLACE VIEW transitions AS
SELECT
    t.rollout_id, t.step, t.trace_id, t.span_id, c.agent_name, t.task_id,
    printf('%016x', t.task_hash) AS task_hash, t.split, c.state_hash,
    c.input_messages AS messages, c.tool_definitions AS tools, c.output_messages AS completion,
    t.arm_key, t.arm, t.propensity, t.behavior_logprob, t.policy_version,
    coalesce(c.response_model, c.request_model) AS model,
    TRY_CAST(c.request_params ->> '$.temperature' AS DOUBLE) AS temperature,
    c.prompt_token_ids, c.completion_token_ids, c.completion_logprobs,
    t.reward, t.return_to_go, t.advantage, t.terminated, t.truncated, t.next_span_id
FROM transition_rows t
LEFT JOIN llm_calls c USING (trace_id, span_id);
