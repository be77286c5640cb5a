-- What the learner writes. Text is never copied: the view `transitions` joins it from llm_calls.

CREATE TABLE transition_rows (
    rollout_id VARCHAR NOT NULL,
    step INTEGER NOT NULL,
    trace_id VARCHAR NOT NULL,
    span_id VARCHAR NOT NULL USING COMPRESSION uncompressed, -- random: half the cost of writing
    task_id VARCHAR,
    split VARCHAR,
    arm_key VARCHAR,
    arm VARCHAR,
    propensity DOUBLE,
    behavior_logprob DOUBLE,
    policy_version VARCHAR,
    reward DOUBLE,
    return_to_go DOUBLE,
    advantage DOUBLE,
    terminated BOOLEAN,
    truncated BOOLEAN,
    next_span_id VARCHAR USING COMPRESSION uncompressed,
    -- Of what names the task (its id, else the first state, else the rollout): no task is in two
    -- splits, and all rows of a task are built together.
    task_hash UBIGINT
);

-- What became of each rollout when transitions were built last, and from what.
CREATE TABLE transition_rollouts (
    rollout_id VARCHAR NOT NULL,
    task_hash UBIGINT NOT NULL,
    usable_calls BIGINT,
    failed_calls BIGINT,
    context_calls BIGINT,
    excluded VARCHAR,
    fingerprint UBIGINT NOT NULL
);

-- Rewards that rules and judges gave to what is stored: the view `rewards` shows them beside the
-- received ones. `source` is `rule:<name>@<fingerprint>` or `judge:<name>@<fingerprint>`.
CREATE TABLE scores (
    reward_id VARCHAR NOT NULL,
    trace_id VARCHAR,
    span_id VARCHAR,
    response_id VARCHAR,
    rollout_id VARCHAR,
    task_id VARCHAR,
    name VARCHAR NOT NULL,
    value DOUBLE,
    label VARCHAR,
    explanation VARCHAR,
    source VARCHAR NOT NULL,
    "time" TIMESTAMP_NS
);

CREATE TABLE runs (
    run_id VARCHAR NOT NULL,
    command VARCHAR,
    config JSON,
    data_fingerprint VARCHAR,
    started TIMESTAMP_NS,
    ended TIMESTAMP_NS,
    metrics JSON,
    gate JSON,
    outcome VARCHAR,
    artifact VARCHAR
);

CREATE TABLE policies (
    key VARCHAR NOT NULL,
    version VARCHAR NOT NULL,
    arms JSON,
    parameters JSON,
    run_id VARCHAR,
    created TIMESTAMP_NS,
    status VARCHAR
);

CREATE VIEW transitions AS
SELECT
    t.rollout_id, t.step, t.trace_id, t.span_id, c.agent_name, t.task_id, t.split, c.state_hash,
    c.input_messages AS messages, c.tool_definitions AS tools, c.output_messages AS completion,
    t.arm_key, t.arm, t.propensity, t.behavior_logprob, t.policy_version,
    coalesce(c.response_model, c.request_model) AS model,
    TRY_CAST(c.request_params ->> '$.temperature' AS DOUBLE) AS temperature,
    c.prompt_token_ids, c.completion_token_ids, c.completion_logprobs,
    t.reward, t.return_to_go, t.advantage, t.terminated, t.truncated, t.next_span_id
FROM transition_rows t
LEFT JOIN llm_calls c USING (trace_id, span_id);
